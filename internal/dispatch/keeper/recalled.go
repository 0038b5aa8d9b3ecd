package keeper

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// deletion is the record of a deleted object.
type deletion struct {
	slot         slot.Slot
	uid, version string
	at           time.Duration
	serial       uint64 // of recalled
}

// recalled are deletions by name. The oldest are dropped when there are too many or they are too old. It is not safe
// for concurrent use.
type recalled[K comparable] struct {
	age    time.Duration
	most   int
	by     map[K]deletion
	order  []added[K] // the oldest first; some were removed from by, or added again
	serial uint64
}

type added[K comparable] struct {
	name   K
	serial uint64
}

func newRecalled[K comparable](age time.Duration, most int) recalled[K] {
	return recalled[K]{age: age, most: most, by: map[K]deletion{}}
}

func (r *recalled[K]) add(name K, d deletion) {
	r.serial++
	d.serial = r.serial
	r.by[name] = d
	r.order = append(r.order, added[K]{name, d.serial})
	if len(r.order) > 2*r.most {
		r.order = slices.DeleteFunc(r.order, r.stale)
	}
	r.trim(d.at)
}

// stale reports whether an entry of the order has been removed or replaced.
func (r *recalled[K]) stale(a added[K]) bool {
	d, ok := r.by[a.name]
	return !ok || d.serial != a.serial
}

// exists drops the deletion of an object that exists at a version, unless it was deleted after that: events may come
// twice, and a page of a list may predate them.
func (r *recalled[K]) exists(name K, version string) {
	if d, ok := r.by[name]; ok && d.version != "" && resourceversion.Compare(d.version, version) < 0 {
		delete(r.by, name)
	}
}

// trim drops deletions that are too old or too many. It is cheap if there are none.
func (r *recalled[K]) trim(now time.Duration) {
	if len(r.order) == 0 {
		return
	}
	for len(r.order) > 0 {
		first := r.order[0]
		if !r.stale(first) {
			if len(r.by) <= r.most && r.by[first.name].at > now-r.age {
				return
			}
			delete(r.by, first.name)
		}
		r.order = r.order[1:]
	}
	r.by, r.order = map[K]deletion{}, nil // a map never shrinks
}

// take returns and removes the deletions in the slots.
func (r *recalled[K]) take(set slot.Set, now time.Duration) map[K]deletion {
	r.trim(now)
	out := map[K]deletion{}
	for name, d := range r.by {
		if set.Has(d.slot) {
			out[name] = d
			delete(r.by, name)
		}
	}
	return out
}
