package gate

import (
	"sync"
	"sync/atomic"

	"github.com/rota-dev/rota/slot"
)

// Join is like Hold, for a write whose key is unknown. The verdict is
//   - Admitted if the slot is open or drains. The write counts as in flight until release is called. Further calls do
//     nothing.
//   - Parked if the slot has been drained. It may be on its way to another member.
//   - Expired from the deadline on.
//   - Refused if the slot was lost while something was in flight that still is, even if the slot has come back from
//     another member since. The write may be part of that.
//   - Unknown if the slot is shut and nothing is in flight. The write does not concern this gate.
//
// release is nil unless the verdict is Admitted.
func (g *Gate) Join(s slot.Slot) (release func(), verdict Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if int(s) >= len(g.slots) {
		return nil, Unknown
	}
	st := &g.slots[s]
	switch {
	case st.state == shut && st.inFlight > 0:
		return nil, Refused
	case st.state == shut:
		return nil, Unknown
	case st.state == lapsed, g.now() >= g.deadline:
		return nil, Expired
	case st.hasLost(false):
		return nil, Refused
	case st.state == idle:
		return nil, Parked
	}
	g.count(st, 1)
	var released atomic.Bool
	return func() {
		if !released.Swap(true) {
			g.release(s)
		}
	}, Admitted
}

// HasLost reports whether a reconcile, a task or a duty continues without its slot: the slot was lost, or the deadline
// has passed. A write outside this member's slots may be part of it. If the slot was opened again for the same epoch,
// no other member has had it, and the reconcile no longer counts.
func (g *Gate) HasLost() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	late := g.now() >= g.deadline
	for i := range g.slots {
		if st := &g.slots[i]; st.inFlight > 0 && st.hasLost(late || st.state == shut || st.state == lapsed) {
			return true
		}
	}
	return false
}

// hasLost reports whether something is in flight that was admitted for another epoch. all includes what was admitted
// for this one.
func (st *slotState) hasLost(all bool) bool {
	for e := st.first; e != nil; e = e.next {
		if !e.hold && (all || e.epoch != st.epoch) {
			return true
		}
	}
	return false
}

func (g *Gate) release(s slot.Slot) {
	g.mu.Lock()
	g.count(&g.slots[s], -1)
	g.mu.Unlock()
	g.Recheck(s)
}

// LongWrites controls whether this member's writes may take longer than WriteTimeout, and counts those under way (rule
// R2). The zero value allows none. Its methods may be called concurrently and do not block.
type LongWrites struct {
	mu      sync.Mutex
	allowed bool
	// changed is closed when long writes are allowed. It is nil if no write waits for that.
	changed  chan struct{}
	underWay int
	// ended is called when no long write is under way any more. It is nil unless Withdraw waits for that.
	ended func()
}

// Allow allows long writes.
func (l *LongWrites) Allow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allowed, l.ended = true, nil
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Withdraw stops allowing long writes. It calls ended once none is under way, possibly before it returns, unless Allow
// is called first.
func (l *LongWrites) Withdraw(ended func()) {
	l.mu.Lock()
	l.allowed = false
	if l.underWay > 0 {
		l.ended = ended
		ended = nil
	}
	l.mu.Unlock()
	if ended != nil {
		ended()
	}
}

// Begin counts a long write as under way until end is called; further calls do nothing. If end is nil, long writes are
// not allowed now, and the allowed channel is closed when they are.
func (l *LongWrites) Begin() (end func(), allowed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.allowed {
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		return nil, l.changed
	}
	l.underWay++
	var over atomic.Bool
	return func() {
		if !over.Swap(true) {
			l.end()
		}
	}, nil
}

func (l *LongWrites) end() {
	l.mu.Lock()
	l.underWay--
	var ended func()
	if l.underWay == 0 {
		ended, l.ended = l.ended, nil
	}
	l.mu.Unlock()
	if ended != nil {
		ended()
	}
}
