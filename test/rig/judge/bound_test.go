package judge

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

func TestDutyBound(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{0: 18 * time.Second, 3 * time.Second: 4600 * time.Millisecond} {
		if got := DutyBound(lease, 0, 0); got != want {
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
	for name, c := range map[string]struct {
		worked map[slot.Slot]time.Duration
		want   time.Duration
	}{
		"a queue before the first reconcile": {map[slot.Slot]time.Duration{1: 26, 2: 99}, 18},
		"the table lags":                     {map[slot.Slot]time.Duration{1: 25, 2: 24}, 15},
		"nothing to be worked on":            {nil, 0},
		"in one of them":                     {map[slot.Slot]time.Duration{2: 20}, 10},
	} {
		if got := TakenOver(moves, slots, 10, c.worked); got != c.want {
			t.Errorf("%s: taken over after %d, want %d", name, got, c.want)
		}
	}
}
