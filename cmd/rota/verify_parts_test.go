package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Members are compared with what their own informers ask for: those of two builds may ask for different parts, and older
// ones do not say.
func TestPartsOfAKind(t *testing.T) {
	kind := schema.GroupKind{Kind: "ConfigMap"}
	member := func(id string, n slot.Slot, selections ...sharding.Selection) *coverage.Report {
		r := &coverage.Report{Member: id, Open: slot.SetOf(slot.Range{First: n, Last: n}), Digests: coverage.Digests{kind: {}}}
		if selections != nil {
			r.Selections = map[schema.GroupKind][]sharding.Selection{kind: selections}
		}
		return r
	}
	a, b := sharding.Selection{Namespace: "a"}, sharding.Selection{Namespace: "b"}
	web := sharding.Selection{Selectors: sharding.Selectors{Label: "tier=web", Field: "type=x"}}
	usual := []sharding.Selection{{}}
	other := member("other", 5)
	other.Digests = nil // it does not shard the kind
	now := &table.Table{}
	for _, id := range []string{"b", "c", "new", "old", "other"} {
		now.Put(table.Member{ID: id})
	}
	parts := partsOf(kind, ofMembers(now, []*coverage.Report{
		member("c", 2, a, b), member("old", 3), member("b", 1, a, b), member("new", 4, web), other, member("dead", 6, a),
	}), usual)
	got := map[string][]string{}
	var told selectedParts
	told.add(kind, parts)
	for _, p := range parts {
		got[p.String()+" "+p.open.String()] = p.members
	}
	want := map[string][]string{
		"in namespace a, b 1-2": {"b", "c"}, " 3": {"old"}, "with label selector tier=web with field selector type=x 4": {"new"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{
		"compared only the objects of ConfigMap that the members' informers select: in namespace a, b (b, c)",
		"compared only the objects of ConfigMap that the members' informers select: with label selector tier=web with field selector type=x (new)",
	}, told.texts()); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct {
		want       bool
		selections []sharding.Selection
	}{{false, usual}, {false, []sharding.Selection{a, b}}, {true, []sharding.Selection{a, web}}, {true, []sharding.Selection{a, a}}} {
		if got := overlap(c.selections); got != c.want {
			t.Errorf("overlap of %v: %v", c.selections, got)
		}
	}
}
