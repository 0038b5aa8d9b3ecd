package feed

import (
	"sync"
	"sync/atomic"

	"github.com/rota-dev/rota/slot"
)

// slots are the slots of a Share.
type slots struct {
	// held and open are read for every event; they change under mu. open is a subset of held. In the slots of awaited,
	// which includes open, reads wait for what this member wrote.
	held, open, awaited atomic.Pointer[slot.Set]
	ledElsewhere        atomic.Bool

	mu   sync.Mutex
	anew slot.Set // slots of HoldAnew, until Load
}

func newSlots() *slots {
	s := &slots{}
	s.held.Store(&slot.Set{})
	s.open.Store(&slot.Set{})
	s.awaited.Store(&slot.Set{})
	return s
}

// Want adds slots to those held. anew are those that HoldAnew brings.
func (s *slots) Want(set, anew slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held.Load().Union(set)
	s.held.Store(&held)
	s.anew = s.anew.Union(anew)
}

// Unmuted returns the slots of which handlers hear.
func (s *slots) Unmuted() slot.Set { return *s.open.Load() }

// Silence closes slots.
func (s *slots) Silence(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open, awaited := s.open.Load().Minus(set), s.awaited.Load().Minus(set)
	s.open.Store(&open)
	s.awaited.Store(&awaited)
}

// Drop removes slots from those held.
func (s *slots) Drop(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held.Load().Minus(set)
	s.held.Store(&held)
	s.anew = s.anew.Minus(set)
}

// Holds reports whether the share holds the slot, or is about to.
func (s *slots) Holds(n slot.Slot) bool { return s.held.Load().Has(n) }

// Held returns the slots that the share holds, or is about to.
func (s *slots) Held() slot.Set { return *s.held.Load() }

// TakeAnew returns the slots of the set that HoldAnew did not bring: those held before, or made wanted by Hold.
func (s *slots) TakeAnew(set slot.Set) slot.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := set.Minus(s.anew)
	s.anew = s.anew.Minus(set)
	return rest
}

// OpenToReads has reads wait for what this member wrote in the slots, until they are shut (AwaitWrite). Unmute does
// so as well; call OpenToReads first if others may learn before Unmute that the slots are open.
func (s *slots) OpenToReads(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openToReads(set)
}

// openToReads is OpenToReads with mu held.
func (s *slots) openToReads(set slot.Set) {
	awaited := s.awaited.Load().Union(set.Intersect(*s.held.Load()))
	s.awaited.Store(&awaited)
}

// Unmute is the first half of Open: handlers hear of the slots from now on. Its cost does not depend on the number of
// objects.
func (s *slots) Unmute(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openToReads(set)
	open := s.open.Load().Union(set.Intersect(*s.held.Load()))
	s.open.Store(&open)
}

// LedElsewhere sets whether a process that is no member works on all objects and hears of their deletions: a leader
// with stock leader election. Meanwhile none are recorded, however long members wait with the slots that they hold.
func (s *slots) LedElsewhere(yes bool) { s.ledElsewhere.Store(yes) }

// IsLedElsewhere returns what LedElsewhere set last.
func (s *slots) IsLedElsewhere() bool { return s.ledElsewhere.Load() }

// urgent reports whether slots have to be listed at once: no member works on some of them, or this member works on
// nothing.
func (s *slots) urgent(set slot.Set) bool {
	if open := s.open.Load(); open.Empty() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	anew := set.Intersect(s.anew)
	return !anew.Empty()
}
