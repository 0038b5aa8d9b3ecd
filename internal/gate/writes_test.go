package gate_test

import (
	"testing"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/slot"
)

// R6: a write of which nobody knows the key keeps a slot from moving on, and comes too late once the slot has been
// drained.
func TestR6JoinKeepsTheSlot(t *testing.T) {
	g, c := started(t)
	release, verdict := g.Join(1)
	if verdict != gate.Admitted || g.InFlightIn(1) != 1 {
		t.Fatalf("%v, %d in flight", verdict, g.InFlightIn(1))
	}
	idle := 0
	g.Drain(set(1), never, func(slot.Slot) { idle++ })
	again, verdict := g.Join(1)
	if verdict != gate.Admitted {
		t.Errorf("%v while the slot drains", verdict)
	}
	release()
	release()
	if idle != 0 || g.InFlightIn(1) != 1 {
		t.Errorf("drained with %d in flight", g.InFlightIn(1))
	}
	again()
	if idle != 1 {
		t.Error("not drained with nothing in flight")
	}
	if f, verdict := g.Join(1); f != nil || verdict != gate.Parked {
		t.Errorf("%v once the slot is drained", verdict)
	}
	c.add(10 * 1e9)
	if f, verdict := g.Join(2); f != nil || verdict != gate.Expired {
		t.Errorf("%v at the deadline", verdict)
	}
}

func TestR5JoinOfAShutSlot(t *testing.T) {
	g, _ := started(t)
	_, leave := enter(t, g, 1, "a", false, gate.Admitted)
	g.Shut(set(1))
	if f, verdict := g.Join(1); f != nil || verdict != gate.Refused {
		t.Errorf("%v while a reconcile of a lost slot goes on", verdict)
	}
	leave()
	for _, s := range []slot.Slot{1, 3, 100} {
		if f, verdict := g.Join(s); f != nil || verdict != gate.Unknown {
			t.Errorf("%v for slot %d, which is nobody's here", verdict, s)
		}
	}
}

func TestLongWrites(t *testing.T) {
	var l gate.LongWrites
	end, allowed := l.Begin()
	if end != nil {
		t.Fatal("a long write began before any was allowed")
	}
	ended := 0
	l.Withdraw(func() { ended++ })
	if ended != 1 {
		t.Fatal("none is under way, and Withdraw did not say so")
	}
	l.Allow()
	<-allowed
	first, _ := l.Begin()
	second, _ := l.Begin()
	l.Withdraw(func() { ended++ })
	first()
	first()
	if ended != 1 {
		t.Fatal("Withdraw said that none is under way while one is")
	}
	if end, _ := l.Begin(); end != nil {
		t.Fatal("a long write began after they were withdrawn")
	}
	second()
	if ended != 2 {
		t.Fatal("the last one has ended, and Withdraw did not say so")
	}

	l.Allow()
	third, _ := l.Begin()
	l.Withdraw(func() { ended++ })
	l.Allow()
	third()
	if ended != 2 {
		t.Fatal("long writes are allowed again, and Withdraw said that none is under way")
	}
}
