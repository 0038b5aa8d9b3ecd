package sim

import "time"

// event is something that happens at a time. Of several at one time the one planned first happens first.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// queue is a binary heap of events. It is not container/heap since that allocates for each event.
type queue []event

func (q *queue) push(e event) {
	*q = append(*q, e)
	h := *q
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
}

// pop takes out the event that happens first.
func (q *queue) pop() event {
	h := *q
	first, n := h[0], len(h)-1
	e := h[n]
	h[n] = event{}
	h = h[:n]
	*q = h
	for i := 0; n > 0; {
		child := 2*i + 1
		if child+1 < n && h[child+1].before(&h[child]) {
			child++
		}
		if child >= n || !h[child].before(&e) {
			h[i] = e
			break
		}
		h[i] = h[child]
		i = child
	}
	return first
}

// at plans do for a time, not before now.
func (w *World) at(t time.Duration, do func()) {
	w.seq++
	w.queue.push(event{max(t, w.now), w.seq, do})
}

func (w *World) after(d time.Duration, do func()) { w.at(w.now+d, do) }

// After calls do after d of real time.
func (w *World) After(d time.Duration, do func()) { w.after(d, do) }

// mostAtOnce is how many events there may be at one instant: of 40 members whose watches stall until then, each with
// thousands.
const mostAtOnce = 1_000_000

// Run lets d of real time pass. It stops early once something was violated.
func (w *World) Run(d time.Duration) {
	end := w.now + d
	for len(w.queue) > 0 && w.queue[0].at <= end && !w.Failed() {
		e := w.queue.pop()
		if e.at == w.now {
			if w.spin++; w.spin > mostAtOnce {
				w.violate("", "the world stands still: a member asks for Ticks without end")
				return
			}
		} else {
			w.spin = 0
		}
		w.now = e.at
		e.do()
	}
	if !w.Failed() {
		w.now = end
	}
}
