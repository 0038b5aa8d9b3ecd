package sim

import (
	"container/heap"
	"time"
)

// event is something that happens at a time. Of several at one time the one planned first happens first.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *queue) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return last
}

// at plans do for a time, not before now.
func (w *World) at(t time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, event{max(t, w.now), w.seq, do})
}

func (w *World) after(d time.Duration, do func()) { w.at(w.now+d, do) }

// Run lets d of real time pass. It stops early once something was violated.
func (w *World) Run(d time.Duration) {
	end := w.now + d
	for len(w.queue) > 0 && w.queue[0].at <= end && !w.Failed() {
		e := heap.Pop(&w.queue).(event)
		if e.at == w.now {
			if w.spin++; w.spin > 100_000 {
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
