package queue

import "time"

const (
	// doneFor is how long a queue remembers that a take was done, and doneMax how many it remembers.
	doneFor = 2 * time.Minute
	doneMax = 10_000
)

// doneTake is a take that was done.
type doneTake struct {
	id     uint64
	at     time.Duration
	worker string
	result Result
}

// recent remembers recently done takes. It distinguishes a Done that is sent again because its answer was lost from one
// that comes too late.
type recent struct {
	byID  map[uint64]doneTake
	order []doneTake // the oldest first
}

// add records a take that was done.
func (r *recent) add(d doneTake) {
	r.trim(d.at)
	if len(r.order) >= doneMax {
		r.drop(len(r.order) - doneMax + 1)
	}
	if r.byID == nil {
		r.byID = map[uint64]doneTake{}
	}
	r.byID[d.id] = d
	r.order = append(r.order, d)
}

// has reports whether a take was recently done with this result.
func (r *recent) has(now time.Duration, id uint64, worker string, result Result) bool {
	r.trim(now)
	d, ok := r.byID[id]
	return ok && d.worker == worker && d.result == result
}

// trim drops old takes.
func (r *recent) trim(now time.Duration) {
	n := 0
	for n < len(r.order) && now-r.order[n].at > doneFor {
		n++
	}
	r.drop(n)
}

func (r *recent) drop(n int) {
	for _, d := range r.order[:n] {
		delete(r.byID, d.id)
	}
	if r.order = r.order[n:]; len(r.order) == 0 {
		r.byID, r.order = nil, nil // a map never shrinks
	}
}
