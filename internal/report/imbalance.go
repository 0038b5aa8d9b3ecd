package report

import (
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Imbalance is how much more the member with the largest load has than the mean, both divided by the members' weights.
type Imbalance struct {
	Slots float64
	// Objects is 0 if it is not known: a member has not reported, or there are no objects.
	Objects float64
}

// imbalanceOf returns the imbalance of the members that stay. Slots without a working owner count for nobody.
func imbalanceOf(t *table.Table, reports []*coverage.Report) Imbalance {
	objects := map[string]int{}
	for _, r := range reports {
		n := 0
		for _, digests := range r.Digests {
			for _, d := range digests {
				n += d.Objects
			}
		}
		objects[r.Member] = n
	}
	counts := t.Counts()
	var slots, held ratio
	known := true
	for _, other := range t.Members {
		if other.Leaving || t.Drained(other.ID) {
			continue
		}
		n, reported := objects[other.ID]
		known = known && reported
		slots.add(counts[other.ID], other.Weight)
		held.add(n, other.Weight)
	}
	out := Imbalance{Slots: slots.value()}
	if known {
		out.Objects = held.value()
	}
	return out
}

// ratio is that of the largest share to the mean one.
type ratio struct {
	largest    float64
	all, total float64
}

func (r *ratio) add(n, weight int) {
	r.largest = max(r.largest, float64(n)/float64(max(1, weight)))
	r.all += float64(max(1, weight))
	r.total += float64(n)
}

func (r *ratio) value() float64 {
	if r.total == 0 {
		return 0
	}
	return r.largest * r.all / r.total
}
