package table_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// withGone is a sample whose members all read of deletions.
func withGone() *table.Table {
	t := sample()
	for i := range t.Members {
		t.Members[i].MaxFormat = 2
	}
	t.PutGone([]table.Gone{
		{Slot: 84, Kind: "Website.example.com", Namespace: "default", Name: "b"},
		{Slot: 3, Kind: "ClusterRole.rbac.authorization.k8s.io", Name: "edit: all / 100%, ü"},
		{Slot: 84, Kind: "Website.example.com", Namespace: "default", Name: "a"},
		{Slot: 84, Kind: "ConfigMap", Namespace: "default", Name: "a"},
		{Slot: 84, Kind: "ConfigMap", Namespace: "default", Name: "a"},
	})
	return t
}

// A table with deletions says so by its format, and is read as it was.
func TestEncodeGone(t *testing.T) {
	text := table.Encode(withGone())
	want := "3 ClusterRole.rbac.authorization.k8s.io edit:%20all%20%2F%20100%25,%20%C3%BC\n" +
		"84 ConfigMap default/a\n" +
		"84 Website.example.com default/a default/b\n"
	if text["format"] != "2" || text["gone"] != want {
		t.Errorf("format %s, gone:\n%s\nwant 2 and:\n%s", text["format"], text["gone"], want)
	}
	got, err := table.Decode(text)
	if diff := cmp.Diff(withGone(), got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("decoded: %v\n%s", err, diff)
	}
	if size := table.GoneSize(got.Gone); size < len(want) {
		t.Errorf("%d bytes are said to take %d", len(want), size)
	}
	text["format"] = "1" // a program that reads no more than that knows no such field
	if got, err := table.Decode(text); err != nil || len(got.Gone) != 0 {
		t.Errorf("read as format 1: %v, error %v", got, err)
	}
}

func TestDecodeGoneSaysWhatIsWrong(t *testing.T) {
	for _, test := range []struct{ field, old, new, want string }{
		{"gone", "84 ConfigMap default/a", "84 ConfigMap", "want slot kind [namespace/]name"},
		{"gone", "84 ConfigMap", "84000000 ConfigMap", "no slot"},
		{"gone", "84 ConfigMap", "4000 ConfigMap", "not an unsettled"},
		{"gone", "84 ConfigMap", "85 ConfigMap", "not an unsettled"},
		{"gone", "default/b", "default/a", "not in order"},
		{"gone", "default/b", "default/", "the name is empty"},
		{"gone", "default/b", "default/%2", "want %XX"},
		{"members", "2 1-2", "2 1-1", "not every member reads"},
	} {
		text := maps.Clone(table.Encode(withGone()))
		text[test.field] = strings.Replace(text[test.field], test.old, test.new, 1)
		if got, err := table.Decode(text); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q for %q: table %v, error %v; want an error with %q", test.new, test.old, got, err, test.want)
		}
	}
}

// Names stay for as long as the owner of their slot has not settled, whoever that is, and no longer.
func TestSealDropsGone(t *testing.T) {
	tab := withGone()
	tab.Update(slot.SetOf(slot.Range{First: 84, Last: 84}), func(r *table.Run) { r.Owner, r.Epoch = "web-1-p3m9q", 44 })
	tab.Notes[44] = table.Note{Cause: table.CauseExpelled}
	tab.Seal(44)
	if err := tab.Valid(); err != nil || len(tab.Gone) != 4 {
		t.Errorf("%v; %d names after the slot changed hands, want 4", err, len(tab.Gone))
	}
	tab.Update(slot.SetOf(slot.Range{First: 3, Last: 3}), func(r *table.Run) { r.Unsettled = false })
	before := tab.Clone()
	tab.Seal(45)
	if tab.DropGone(84); len(tab.Gone) != 0 || len(before.Gone) != 4 {
		t.Errorf("%v are left once one slot has settled and the other's are dropped", tab.Gone)
	}
}
