package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rota-dev/rota/internal/protocol/plan"
	"github.com/rota-dev/rota/slot"
)

// TestAssignParts: whatever the parts, pins and owners are, slots of a part are with members that may own them, if one
// of these receives, pinned ones with those of the pin, and members of a part have equal shares of what is not pinned. A
// plan made again changes nothing.
func TestAssignParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, members := rapid.IntRange(1, 40).Draw(t, "slots"), rapid.IntRange(1, 6).Draw(t, "members")
		in := plan.LoadInput{}
		side := map[string]bool{} // whether the first part is a member's
		labeled := map[string]bool{}
		for i := range members {
			id := fmt.Sprint("m", i)
			side[id], labeled[id] = rapid.Bool().Draw(t, "side"), rapid.Bool().Draw(t, "labeled")
			in.Members = append(in.Members, plan.Member{ID: id, Weight: 1, Receives: rapid.IntRange(0, 4).Draw(t, "receives") > 0})
		}
		var first, pinned slot.Set
		for s := range n {
			owner := ""
			if i := rapid.IntRange(-1, members-1).Draw(t, "owner"); i >= 0 {
				owner = in.Members[i].ID
			}
			in.Owners = append(in.Owners, owner)
			if rapid.Bool().Draw(t, "first") {
				first.Add(slot.Slot(s))
			}
			if rapid.IntRange(0, 9).Draw(t, "pinned") == 0 {
				pinned.Add(slot.Slot(s))
			}
		}
		has := func(of bool) func(string) bool { return func(id string) bool { return side[id] == of } }
		part := func(of bool, slots slot.Set) plan.Part {
			p := plan.Part{Slots: slots, Has: has(of)}
			p.Pins = []plan.Part{{Slots: slots.Intersect(pinned), Has: func(id string) bool { return side[id] == of && labeled[id] }}}
			return p
		}
		all := slot.SetOf(slot.Range{First: 0, Last: slot.Slot(n - 1)})
		parts := []plan.Part{part(true, first), part(false, all.Minus(first))}
		assign := plan.AssignByLoad
		if rapid.Bool().Draw(t, "by number") {
			assign = func(in plan.LoadInput) ([]string, slot.Set) { return plan.Assign(in.Input), slot.Set{} }
		}
		nobody := func(string) bool { return false }
		owners, _ := plan.AssignParts(in, parts, nobody, assign)
		receives := func(of, label bool) bool {
			return slices.ContainsFunc(in.Members, func(m plan.Member) bool {
				return m.Receives && side[m.ID] == of && (!label || labeled[m.ID])
			})
		}
		for s, owner := range owners {
			of := first.Has(slot.Slot(s))
			switch {
			case !receives(of, false):
			case owner == "" || side[owner] != of:
				t.Fatalf("slot %d is with %q, of the other part", s, owner)
			case pinned.Has(slot.Slot(s)) && receives(of, true) && !labeled[owner]:
				t.Fatalf("pinned slot %d is with %s", s, owner)
			}
		}
		again := in
		again.Owners = owners
		if twice, _ := plan.AssignParts(again, parts, nobody, assign); !slices.Equal(owners, twice) && !slices.Contains(owners, "") {
			t.Fatalf("made again: %v, and before %v", twice, owners)
		}
		in.Moving = all // as of members that leave, or while moves are paused
		kept, _ := plan.AssignParts(in, parts, func(string) bool { return true }, assign)
		for s, owner := range in.Owners {
			if owner != "" && side[owner] != first.Has(slot.Slot(s)) && kept[s] != owner && pinned.Empty() {
				t.Fatalf("slot %d goes from %s, which stays, to %s", s, owner, kept[s])
			}
		}
	})
}
