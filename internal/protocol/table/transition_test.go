package table_test

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

var ids = []string{"web-0-x7k2p", "web-1-p3m9q", "web-2-k8d4z", "web-3-m2n6c"}

// change makes one random change as the protocol may make it, and seals.
func change(t *rapid.T, tab *table.Table) {
	epoch := tab.Epoch + uint64(rapid.IntRange(1, 3).Draw(t, "epochs"))
	id := rapid.SampledFrom(ids).Draw(t, "member")
	a, b := rapid.IntRange(0, int(tab.Slots)-1).Draw(t, "slot"), rapid.IntRange(0, int(tab.Slots)-1).Draw(t, "slot")
	set := slot.SetOf(slot.Range{First: slot.Slot(min(a, b)), Last: slot.Slot(max(a, b))})
	if rapid.Bool().Draw(t, "hole") {
		set.Remove(slot.Slot((a + b) / 2))
	}
	can := tab.Can()
	duties := func(m table.Member) {
		for i, name := range tab.Duties {
			if s := slot.Slot(int(tab.Slots) + i); name != "" && can(m, s) && rapid.Bool().Draw(t, "with duty") {
				set.Add(s)
			}
		}
	}
	self, isMember := tab.Member(id)
	switch rapid.IntRange(0, 4).Draw(t, "change") {
	case 0:
		names := rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})).Draw(t, "duties")
		for _, r := range tab.Runs { // what it has or gets it goes on announcing
			if r.Owner == id || r.Next == id {
				if name := tab.Duty(r.Slots.First); name != "" {
					names = append(names, name)
				}
			}
		}
		tab.Put(table.Member{
			ID: id, Pod: id[:5], Weight: 1, MinFormat: 1, MaxFormat: 3, Leaving: rapid.Bool().Draw(t, "leaving"),
			Duties: table.JoinDuties(names...),
		})
	case 1:
		tab.Remove(id)
		tab.Expels = append(tab.Expels, table.Expel{Pod: id[:5], At: int64(epoch)})
	case 2: // assign
		if isMember {
			duties(self)
			tab.Update(set, func(r *table.Run) { *r = table.Run{Slots: r.Slots, Owner: id, Epoch: epoch, Unsettled: true} })
			tab.Notes[epoch] = table.Note{Cause: table.CauseAssigned}
		}
	case 3: // plan
		if isMember {
			duties(self)
			tab.Update(set, func(r *table.Run) {
				if r.Owner != "" && r.Owner != id {
					r.Next, r.Ready = id, rapid.Bool().Draw(t, "ready")
				}
			})
		}
	case 4: // transfer
		set.AddRange(slot.Range{First: slot.Slot(tab.Slots), Last: slot.Slot(tab.Slots) + 9})
		tab.Update(set, func(r *table.Run) {
			if r.Next != "" {
				*r = table.Run{Slots: r.Slots, Owner: r.Next, Epoch: epoch, Unsettled: true}
			}
		})
		tab.Notes[epoch] = table.Note{Cause: table.CauseHanded, Versions: table.Versions{"ConfigMap": "7"}}
		tab.PutGone([]table.Gone{{Slot: slot.Slot(a), Kind: "ConfigMap", Namespace: "a", Name: "b"}, {Slot: slot.Slot(b), Kind: "Node", Name: "b"}})
	}
	tab.Seal(epoch)
}

// TestEveryVersionTiles: rule R4, whatever the transitions, in every version.
func TestEveryVersionTiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab := table.New(slot.Count(1<<rapid.IntRange(0, 6).Draw(t, "log2 of the slots")), slot.KeyName, 1)
		tab.Notes = map[uint64]table.Note{}
		for range rapid.IntRange(0, 30).Draw(t, "changes") {
			change(t, tab)
			if err := tab.Valid(); err != nil {
				t.Fatalf("%v\n%+v", err, tab)
			}
			for i := 1; i < len(tab.Runs); i++ {
				a, b := tab.Runs[i-1], tab.Runs[i]
				hash := !tab.IsDuty(b.Slots.First)
				if a.Slots, b.Slots = (slot.Range{}), (slot.Range{}); a == b && hash {
					t.Fatalf("runs %d and %d could be one: %+v", i-1, i, tab.Runs)
				}
			}
			decoded, err := table.Decode(table.Encode(tab))
			if err != nil {
				t.Fatalf("%v\n%+v", err, tab)
			}
			require.Equal(t, "Decode of Encode", tab, decoded, cmpopts.EquateEmpty())
		}
	})
}

// TestUpdateTouchesOnlyItsSlots against the plain way, slot by slot.
func TestUpdateTouchesOnlyItsSlots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab := table.New(64, slot.KeyName, 1)
		tab.Notes = map[uint64]table.Note{}
		for range 8 {
			change(t, tab)
		}
		before := tab.Clone()
		var set slot.Set
		for range rapid.IntRange(0, 10).Draw(t, "slots") {
			set.Add(slot.Slot(rapid.IntRange(0, 63).Draw(t, "slot")))
		}
		tab.Update(set, func(r *table.Run) { r.Epoch += 1000 })
		for s := range slot.Slot(64) {
			want := before.At(s)
			if set.Has(s) {
				want.Epoch += 1000
			}
			if got := tab.At(s); got != want {
				t.Fatalf("slot %d: %+v, want %+v", s, got, want)
			}
		}
	})
}
