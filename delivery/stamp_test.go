package delivery_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/slot"
)

func TestStamp(t *testing.T) {
	value := func(key slot.Key, name string) string {
		return delivery.LabelValue(key.Hash("a", name, string(uidOf(name))))
	}
	for _, c := range []struct {
		kind       delivery.Kind
		key        slot.Key
		own, owner string // the labels
	}{
		{delivery.Filter, slot.KeyName, "", ""},
		{delivery.Filter, slot.KeyUID, "", ""},
		{delivery.SlotLabel, slot.KeyName, "rota.dev/hash", "rota.dev/owner-hash"},
		{delivery.SlotLabel, slot.KeyNamespace, "rota.dev/namespace-hash", "rota.dev/owner-namespace-hash"},
		{delivery.ShardSelector, slot.KeyUID, "", "rota.dev/owner-uid-hash"},
	} {
		t.Run(fmt.Sprint(c.kind, c.key), func(t *testing.T) {
			s := delivery.New(delivery.Options{Kind: c.kind, Key: c.key})
			if err := s.Shard(siteKind); err != nil {
				t.Fatal(err)
			}
			if !s.Own(childKind, siteKind, true) {
				t.Fatal("not owned")
			}
			check := func(what string, kind schema.GroupKind, name, owner, label, about string) {
				t.Helper()
				want := ""
				if label != "" {
					want = value(c.key, about)
				}
				gotLabel, got, ok := s.Stamp(kind, child(name, owner))
				if gotLabel != label || got != want || ok != (label != "") {
					t.Errorf("%s: %q=%q, %v; want %q=%q", what, gotLabel, got, ok, label, want)
				}
			}
			check("primary", siteKind, "x", "", c.own, "x")
			check("owned", childKind, "x", "site", c.owner, "site")
			check("without owner", childKind, "x", "", "", "")
			check("of another kind", schema.GroupKind{Kind: "Other"}, "x", "site", "", "")
		})
	}
	if delivery.HashLabel(slot.KeyUID) != "" || delivery.HashLabel(slot.KeyUnknown) != "" || delivery.OwnerLabel(slot.KeyUnknown) != "" {
		t.Error("labels of keys that have none")
	}
}
