package table_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// The largest table there can be fits into a ConfigMap: every slot moves by itself, and its notes have all the room
// that members give them (a quarter of 15/16 of it), as have the names of objects that are gone (an eighth).
func TestLargestTableFits(t *testing.T) {
	for _, members := range []int{50, 300, 1000} {
		tab := table.New(slot.MaxCount, slot.KeyName, 1_763_712_000_000)
		for m := range members {
			id := fmt.Sprintf("a-name-as-long-as-those-of-pods-often-are-7d9f8b6c5d-%05d-abcde", m)
			tab.Put(table.Member{
				ID: id, Pod: id[:len(id)-6], PodUID: "1b4e28ba-2fa1-11d2-883f-0016d3cca427", Container: "manager",
				Build: "7d9f8b6c5d", Weight: 1, MinFormat: 1, MaxFormat: 2, Joined: 1_763_712_000,
			})
		}
		tab.Runs, tab.Notes = nil, map[uint64]table.Note{}
		for s := range slot.Slot(slot.MaxCount) {
			epoch := tab.Epoch - uint64(s)%64
			tab.Runs = append(tab.Runs, table.Run{
				Slots: slot.Range{First: s, Last: s}, Owner: tab.Members[int(s)%members].ID, Epoch: epoch, Unsettled: true,
				Next: tab.Members[int(s+1)%members].ID, Ready: true,
			})
			tab.Notes[epoch] = table.Note{Cause: table.CauseAssigned}
		}
		for n := 0; tab.NotesSize() < table.MaxSize/16*15/4-100; n++ {
			epoch := tab.Epoch - uint64(n)%64
			note := tab.Notes[epoch]
			note.Cause = table.CauseHanded
			note.Versions = note.Versions.Merge(table.Versions{fmt.Sprintf("SomeKind%d.group.example.com", n): "1234567890"})
			tab.Notes[epoch] = note
		}
		for n := 0; table.GoneSize(tab.Gone) < table.MaxSize/16*15/8-100; n++ {
			tab.Gone = append(tab.Gone, table.Gone{Slot: slot.Slot(n), Kind: "SomeKind.group.example.com", Namespace: "default", Name: fmt.Sprint("some-name-", n)})
		}
		require.NoError(t, tab.Valid())
		text, size := table.Encode(tab), 0
		for _, part := range text {
			size += len(part)
		}
		if got := tab.Size(table.MaxSize); size > table.MaxSize/16*15 || got < size {
			t.Errorf("%d members: %d bytes, said to be %d", members, size, got)
		}
		t.Logf("%d members: %d bytes", members, size)
		if back, err := table.Decode(text); err != nil || len(back.Runs) != len(tab.Runs) || back.Runs[77] != tab.Runs[77] {
			t.Errorf("%d members: read back: %v", members, err)
		}
	}
}

// Size is never less than the text takes, whatever duties members can do.
func TestSizeHasDutiesOfMembers(t *testing.T) {
	for _, c := range []struct{ members, duties, each int }{
		{3, 4, 2}, {300, 512, 256}, {1000, 512, 0}, {1000, 512, 512}, {1000, 512, 100}, {1300, 512, 256},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		tab := table.New(256, slot.KeyName, 5)
		for m := range c.members {
			var names []string
			for _, d := range r.Perm(c.duties)[:c.each] {
				names = append(names, fmt.Sprintf("d%03d", d))
			}
			id := fmt.Sprintf("operator-5f7c9d8b6c-%05d-x7k2p", m)
			tab.Put(table.Member{ID: id, Weight: 1, MinFormat: 1, MaxFormat: 5, Build: "v1", Duties: table.JoinDuties(names...)})
		}
		tab.Seal(9)
		require.NoError(t, tab.Valid())
		text := 0
		for field, part := range table.Encode(tab) {
			text += len(field) + len(part)
		}
		if said := tab.Size(table.MaxSize); said < text {
			t.Errorf("%+v: %d bytes, said to be %d", c, text, said)
		}
	}
}

func TestListIsAboveEveryVersion(t *testing.T) {
	for _, version := range []string{"", "1", "9999", "18446744073709551615"} {
		if resourceversion.Compare(version, table.List) >= 0 || resourceversion.Compare(table.List, version) <= 0 {
			t.Errorf("%q is not below %q", version, table.List)
		}
	}
	got := table.Versions{"A": "1", "B": table.List}.Merge(table.Versions{"A": table.List, "B": "7"})
	if got["A"] != table.List || got["B"] != table.List || resourceversion.Compare(table.List, table.List) != 0 {
		t.Errorf("merged: %v", got)
	}
}

func TestReadableVersions(t *testing.T) {
	got, ok := table.Versions{"A": "16354/", "B": "7", "C": "", "D": "07", "E": table.List}.Readable()
	want := table.Versions{"A": table.List, "B": "7", "C": table.List, "D": table.List, "E": table.List}
	if fmt.Sprint(got) != fmt.Sprint(want) || !ok {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, ok := (table.Versions{"a b": "7"}).Readable(); ok {
		t.Error("a kind that is not a word counts as readable")
	}
}
