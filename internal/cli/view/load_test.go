package view

import (
	"slices"
	"testing"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/slot"
)

// The hottest slots come from the reports of those that own them, the most busy first.
func TestHottestSlots(t *testing.T) {
	in := healthy(t)
	in.reports[0].Loads = coverage.LoadsOf(map[slot.Slot]float64{3: 1.5, 5: 0.01, 200: 9}) // the last one is b's
	in.reports[1].Loads = []coverage.Load{{Slots: slot.Range{First: 200, Last: 203}, Workers: 0.8}}
	r := build(in)
	want := []Hot{{3, 3, "a", 1.5}, {200, 203, "b", 0.8}}
	if !slices.Equal(r.Hottest, want) {
		t.Errorf("hottest %v, want %v", r.Hottest, want)
	}
	for i, want := range []float64{10.51, 0.8} {
		if got := r.Members[i].Load; got == nil || *got != want {
			t.Errorf("load of %s: %v, want %v", r.Members[i].ID, got, want)
		}
	}
	for s, want := range map[slot.Slot]float64{3: 1.5, 4: 0} {
		if got := r.loadOf(s); got == nil || *got != want {
			t.Errorf("load of slot %d: %v, want %v", s, got, want)
		}
	}
	if got := r.loadOf(201); got != nil {
		t.Errorf("load of slot 201: %v, want that it is known of four slots together only", *got)
	}
	in.reports[1].Loads = nil
	r = build(in)
	if r.Members[1].Load != nil || r.loadOf(201) != nil {
		t.Error("a member that does not report a load has one")
	}
}
