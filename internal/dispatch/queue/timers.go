package queue

import (
	"container/heap"
	"time"
)

// timed is an item with a time, which stores its place in the heap.
type timed interface {
	when() time.Duration
	put(place int)
	at() int
}

// timers is a heap of items ordered by time. Items that are not in it have the place -1.
type timers[T timed] struct{ h timerHeap[T] }

func (t *timers[T]) add(x T) { heap.Push(&t.h, x) }

// moved restores the order after x's time has changed.
func (t *timers[T]) moved(x T) { heap.Fix(&t.h, x.at()) }

// remove removes x if it is in the heap.
func (t *timers[T]) remove(x T) {
	if x.at() >= 0 {
		heap.Remove(&t.h, x.at())
	}
}

// due removes and returns the first item whose time has come.
func (t *timers[T]) due(now time.Duration) (x T, ok bool) {
	if len(t.h) == 0 || t.h[0].when() > now {
		return x, false
	}
	x, ok = heap.Pop(&t.h).(T)
	return x, ok
}

// first returns the first item.
func (t *timers[T]) first() (x T, ok bool) {
	if len(t.h) == 0 {
		return x, false
	}
	return t.h[0], true
}

// next returns the first item's time, or never if there is none.
func (t *timers[T]) next() time.Duration {
	if len(t.h) == 0 {
		return never
	}
	return t.h[0].when()
}

// timerHeap is the heap.Interface of timers.
type timerHeap[T timed] []T

func (h timerHeap[T]) Len() int           { return len(h) }
func (h timerHeap[T]) Less(i, j int) bool { return h[i].when() < h[j].when() }

func (h timerHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].put(i)
	h[j].put(j)
}

func (h *timerHeap[T]) Push(x any) {
	item := x.(T) // add guarantees the type
	item.put(len(*h))
	*h = append(*h, item)
}

func (h *timerHeap[T]) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	var none T
	(*h)[last], *h = none, (*h)[:last]
	x.put(-1)
	return x
}
