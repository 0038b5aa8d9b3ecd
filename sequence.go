package rota

import (
	"sync"

	"github.com/rota-dev/rota/slot"
)

// sequence runs work on slots: concurrently, but for each slot in the order of the calls.
type sequence struct {
	mu   sync.Mutex
	last map[slot.Slot]chan struct{}
	wg   sync.WaitGroup
}

func newSequence() *sequence { return &sequence{last: map[slot.Slot]chan struct{}{}} }

// run starts work on the slots once all earlier work on any of them is done. It does not block.
func (q *sequence) run(set slot.Set, work func()) {
	done := make(chan struct{})
	before := map[chan struct{}]bool{}
	q.mu.Lock()
	for _, s := range set.Slots() {
		if earlier := q.last[s]; earlier != nil {
			before[earlier] = true
		}
		q.last[s] = done
	}
	q.mu.Unlock()
	q.wg.Go(func() {
		for earlier := range before {
			<-earlier
		}
		work()
		q.mu.Lock()
		for _, s := range set.Slots() {
			if q.last[s] == done {
				delete(q.last, s)
			}
		}
		q.mu.Unlock()
		close(done)
	})
}

// wait blocks until all work is done. Nothing may be started meanwhile.
func (q *sequence) wait() { q.wg.Wait() }
