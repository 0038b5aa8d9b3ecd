package feed

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/rota-dev/rota/slot"
)

// never is the number of a barrier that does not come: handlers believe nothing before it; see barriers.arrived.
const never = math.MaxUint64

// barriers are the barriers on their way through an informer.
type barriers struct {
	// joining is held while a barrier travels and while a handler is added. So a handler that is added after barrier n has
	// seen n, and will see all later ones. marks is the number of the last barrier sent.
	joining sync.Mutex
	marks   atomic.Uint64
	// arrived[s] is the barrier before which notifications about slot s may be false: if a Replace races with the loss of
	// the slot, it reports to handlers that the slot's objects were deleted. It is 0 if there is no such barrier.
	arrived []atomic.Uint64

	mu      sync.Mutex
	waiting map[uint64]chan struct{}
}

// barrier is a mark that was sent to the store.
type barrier struct {
	serial  uint64
	arrived chan struct{}
	sent    bool
}

// raise sends a barrier. await has to follow.
func (s *barriers) raise(fresh slot.Set, send func(serial uint64) bool) barrier {
	s.joining.Lock()
	b := barrier{serial: s.marks.Add(1), arrived: make(chan struct{})}
	for _, n := range fresh.Slots() {
		s.arrived[n].Store(b.serial)
	}
	s.mu.Lock()
	s.waiting[b.serial] = b.arrived
	s.mu.Unlock()
	b.sent = send(b.serial)
	return b
}

// await waits until a barrier has arrived. It returns false if it does not.
func (s *barriers) await(b barrier, done <-chan struct{}) bool {
	defer s.joining.Unlock()
	if b.sent {
		// User code cannot block this: listeners have unbounded queues.
		select {
		case <-b.arrived:
			return true
		case <-done:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, b.serial)
	return false
}

// arrives ends the wait for a barrier.
func (s *barriers) arrives(serial uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if arrived, ok := s.waiting[serial]; ok {
		close(arrived)
		delete(s.waiting, serial)
	}
}

// join has a handler that sees all barriers after the last one be added.
func (s *barriers) join(add func(last uint64) error) error {
	s.joining.Lock()
	defer s.joining.Unlock()
	return add(s.marks.Load())
}
