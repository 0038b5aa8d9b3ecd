package ctrlrt

import (
	"container/list"
	"sync"
)

// arrivals are the keys that came with slots, and wait in a priority queue behind all events. A controller whose
// objects requeue themselves all the time never comes to them. So the one that has waited longest gets one turn in
// every. The zero value is empty and gives none. Its methods may be called concurrently.
type arrivals struct {
	every int

	mu    sync.Mutex
	order list.List // of requests, the first one first
	where map[request]*list.Element
	turns int // that were not theirs, while some waited
}

// came notes keys that are about to be added to the queue.
func (a *arrivals) came(keys []request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.where == nil {
		a.where = map[request]*list.Element{}
	}
	for _, key := range keys {
		if a.where[key] == nil {
			a.where[key] = a.order.PushBack(key)
		}
	}
}

// next returns the key whose turn it is; false if it is the turn of the highest priority.
func (a *arrivals) next() (request, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.order.Front()
	if first == nil || a.every == 0 {
		a.turns = 0
		return request{}, false
	}
	if a.turns++; a.turns < a.every {
		return request{}, false
	}
	a.turns = 0
	a.order.MoveToBack(first) // a worker may have it just now, and then another one is next
	return first.Value.(request), true
}

// taken notes that a worker has got a key, and returns whether it was one of these.
func (a *arrivals) taken(key request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.where[key]
	if at == nil {
		return false
	}
	a.order.Remove(at)
	delete(a.where, key)
	return true
}
