package view

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

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
	hot := func(name string, s slot.Slot, workers float64) coverage.HotObject {
		return coverage.HotObject{Controller: "website", Kind: schema.GroupKind{Group: "example.com", Kind: "Website"},
			Object: types.NamespacedName{Namespace: "team", Name: name}, Slot: s, Workers: workers}
	}
	in.reports[0].Hottest = []coverage.HotObject{hot("a", 3, 0.4), hot("cold", 4, 0.01), hot("others", 200, 3)} // b's slot
	in.reports[1].Hottest = []coverage.HotObject{hot("b", 200, 0.7)}
	r = build(in)
	var objects []string
	for i := range r.HottestObjects {
		h := &r.HottestObjects[i]
		objects = append(objects, fmt.Sprint(h.Object(), " ", h.Slot, h.Member, h.Workers))
	}
	if want := []string{"Website.example.com team/b 200b0.7", "Website.example.com team/a 3a0.4"}; !slices.Equal(objects, want) {
		t.Errorf("hottest objects %q, want %q", objects, want)
	}
	if n, none := r.hotOf("Website.example.com", "team", "b"), r.hotOf("Website.example.com", "team", "c"); n != 0.7 || none != 0 {
		t.Errorf("b keeps %v busy, and c %v", n, none)
	}
	if r.Balance != BalanceNumber {
		t.Errorf("balance %s", r.Balance)
	}
	in.reports[0].Setup = map[string]string{coverage.SettingBalance: coverage.BalanceLoad}
	if r := build(in); r.Balance != BalanceMixed {
		t.Errorf("balance %s, want mixed", r.Balance)
	}
	in.reports[1].Setup = in.reports[0].Setup
	if r := build(in); r.Balance != BalanceLoad {
		t.Errorf("balance %s, want load", r.Balance)
	}
	in.reports[1].Loads = nil
	r = build(in)
	if r.Members[1].Load != nil || r.loadOf(201) != nil {
		t.Error("a member that does not report a load has one")
	}
}
