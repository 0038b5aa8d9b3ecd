package ctrlrt

import (
	"container/list"
	"sync"
)

// arrivals are keys of newly gained slots that wait in a priority queue behind all events. If a controller's objects
// requeue themselves all the time, these keys would wait forever. So one turn in every goes to the key that has waited
// longest. The zero value is empty and grants no turns. Its methods may be called concurrently.
type arrivals struct {
	every int

	mu    sync.Mutex
	order list.List // of requests, oldest first
	where map[request]*list.Element
	turns int // other turns since the last one, while keys waited
}

// came records keys that are about to be added to the queue.
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

// next returns the key whose turn it is. It returns false if the turn belongs to the highest priority.
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
	a.order.MoveToBack(first) // a worker may have it right now; then another key is next
	return first.Value.(request), true
}

// taken records that a worker has got a key, and returns whether the key was an arrival.
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
