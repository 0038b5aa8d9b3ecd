package check

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/slot"
)

// The bounds are those that docs/guarantees.md and docs/verification.md state.
func TestCrashBound(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{0: 21500 * time.Millisecond, 3 * time.Second: 8100 * time.Millisecond} {
		if got := CrashBound(lease, 0, 0); got != want {
			t.Errorf("lease %v: %v, want %v", lease, got, want)
		}
	}
}

func TestTakenOver(t *testing.T) {
	var slots slot.Set
	slots.Add(1)
	slots.Add(2)
	moves := []Move{
		{Slot: 1, From: "x", To: "dead", Active: 5},
		{Slot: 3, From: "a", To: "b", Active: 50},
		{Slot: 1, From: "dead", To: "a", Active: 27},
		{Slot: 2, From: "dead", To: "b", Active: 28},
		{Slot: 1, From: "a", To: "c", Active: 60}, // it moved on
	}
	if got := TakenOver(moves, slots, 10); got != 18 {
		t.Errorf("taken over after %d, want 18", got)
	}
	if got := TakenOver(nil, slots, 10); got != 0 {
		t.Errorf("nothing moved: %d", got)
	}
}
