package stream

import (
	"testing"

	"github.com/rota-dev/rota/slot"
)

// An event that a list of its slot has overtaken stays so if it waits for a list of other slots, although the position
// passes the first list meanwhile: a child that is gone does not come back.
func TestEventsThatWaitAreNoNewerThanListsBefore(t *testing.T) {
	s := New(Config{Slots: 4, Moves: true})
	held := slot.SetOf(slot.Range{First: 0, Last: 0})
	s.Commit(s.Begin(held), "10")
	grow := func(n slot.Slot) Task {
		t.Helper()
		held.Add(n)
		for {
			task := s.Next(held)
			switch task.Kind {
			case Settle:
				s.Settled(s.Settle(task))
				continue
			case Grow:
				s.Warm(task.Set)
				return task
			case Nothing, Drop:
			}
			t.Fatalf("the next task is %+v", task)
		}
	}
	s.Release(nil, grow(1), "21", nil)
	task := grow(2)
	child := Object{Name: Name{"a", "child"}, UID: "1", Version: "13", Slot: 1, In: true, Right: true}
	for _, e := range []Event{{Type: Added, Object: child}, {Type: Deleted, Object: child}} {
		if e.Type == Deleted {
			e.Object.Version = "16"
		}
		if outs, _ := s.Event(nil, &e); len(outs) > 0 {
			t.Fatalf("%v of a slot listed at 21 sends %v", e, outs)
		}
		s.Advance(e.Object.Version)
	}
	s.Advance("30")
	if outs, _ := s.Release(nil, task, "31", nil); len(outs) > 0 {
		t.Errorf("what waited for another list sends %v", outs)
	}
	if s.Behind() {
		s.Advance("31")
	}
	if s.Behind() {
		t.Error("the stream is behind a list that it has passed")
	}
}
