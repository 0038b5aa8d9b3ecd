package report

import (
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Imbalance is the largest share of a member divided by the mean share, where each share is divided by the member's
// weight.
type Imbalance struct {
	Slots float64
	// Objects is 0 if unknown: a member has not reported, or there are no objects.
	Objects float64
	// Load is the imbalance of busy workers. It is 0 if unknown, or if there is less than leastLoad for each member.
	Load float64
}

// leastLoad is how many workers must be busy per member on average, so that the imbalance is more than chance.
const leastLoad = 0.1

// imbalanceOf returns the imbalance of the members that stay. Slots without a working owner do not count.
func imbalanceOf(t *table.Table, reports []*coverage.Report) Imbalance {
	objects, loads := map[string]int{}, map[string]float64{}
	for _, r := range reports {
		n := 0
		for _, digests := range r.Digests {
			for _, d := range digests {
				n += d.Objects
			}
		}
		objects[r.Member] = n
		if workers, ok := r.Load(); ok {
			loads[r.Member] = workers
		}
	}
	counts := t.Counts()
	var slots, held, load ratio
	known, loadKnown, members := true, true, 0.0
	for _, other := range t.Members {
		if other.Leaving || t.Drained(other.ID) {
			continue
		}
		n, reported := objects[other.ID]
		known = known && reported
		workers, loaded := loads[other.ID]
		loadKnown = loadKnown && loaded
		members++
		slots.add(float64(counts[other.ID]), other.Weight)
		held.add(float64(n), other.Weight)
		load.add(workers, other.Weight)
	}
	out := Imbalance{Slots: slots.value()}
	if known {
		out.Objects = held.value()
	}
	if loadKnown && load.total >= leastLoad*members {
		out.Load = load.value()
	}
	return out
}

// ratio computes the largest share divided by the mean.
type ratio struct {
	largest    float64
	all, total float64
}

func (r *ratio) add(n float64, weight int) {
	r.largest = max(r.largest, n/float64(max(1, weight)))
	r.all += float64(max(1, weight))
	r.total += n
}

func (r *ratio) value() float64 {
	if r.total == 0 {
		return 0
	}
	return r.largest * r.all / r.total
}
