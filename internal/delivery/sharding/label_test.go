package sharding

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

func TestStamp(t *testing.T) {
	value := func(key slot.Key, name string) string {
		return LabelValue(key.Hash("a", name, name+"-1"))
	}
	for _, c := range []struct {
		kind       Mode
		key        slot.Key
		own, owner string // the labels
	}{
		{Filter, slot.KeyName, "", ""},
		{Filter, slot.KeyUID, "", ""},
		{SlotLabel, slot.KeyName, "rota.dev/hash-site-1720ae", "rota.dev/owner-hash-configmap-fd3f2d"},
		{SlotLabel, slot.KeyNamespace, "rota.dev/namespace-hash-site-1720ae",
			"rota.dev/owner-namespace-hash-configmap-fd3f2d"},
		{ShardSelector, slot.KeyUID, "", "rota.dev/owner-uid-hash-configmap-fd3f2d"},
	} {
		t.Run(fmt.Sprint(c.kind, c.key), func(t *testing.T) {
			s := New(Options{Mode: c.kind, Key: c.key})
			require.NoError(t, s.Shard(siteKind))
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
	if HashLabel(slot.KeyUID, siteKind) != "" || HashLabel(slot.KeyUnknown, siteKind) != "" ||
		OwnerLabel(slot.KeyUnknown, siteKind) != "" {
		t.Error("labels of keys that have none")
	}
}

// Each key, role and kind has a label of its own, which the API server takes, whatever the kind is called.
func TestLabelNames(t *testing.T) {
	long := strings.Repeat("Long", 15) + "ish" // the longest there can be: 63
	of := map[string]string{}
	for _, kind := range []schema.GroupKind{
		{Kind: "Site"}, {Group: "a.example.com", Kind: "Site"}, {Group: "b.example.com", Kind: "Site"},
		{Group: "a.example.com", Kind: "Sites"},
		{Group: "a.example.com", Kind: long}, {Group: "a.example.com", Kind: long[:62] + "x"},
		{Group: "a.example.com", Kind: long[:40]},
	} {
		for _, key := range []slot.Key{slot.KeyName, slot.KeyNamespace, slot.KeyUID} {
			for role, label := range map[string]string{"primary": HashLabel(key, kind),
				"owned": OwnerLabel(key, kind)} {
				if label == "" && key == slot.KeyUID && role == "primary" {
					continue
				}
				if problems := validation.IsQualifiedName(label); len(problems) > 0 || !strings.HasPrefix(label, names.Prefix+"/") {
					t.Errorf("%s: %v", label, problems)
				}
				this := fmt.Sprintf("%s %s by %s", role, kind, key)
				if other := of[label]; other != "" {
					t.Errorf("%s is the label of %s and of %s", label, other, this)
				}
				of[label] = this
			}
		}
	}
	// It stands in the objects of clusters.
	if got, want := HashLabel(slot.KeyName, schema.GroupKind{Group: "web.example.com", Kind: "Website"}),
		"rota.dev/hash-website-b2c498"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What is copied from a parent to its child, as some operators copy all labels, says nothing about the child, even
// where its kind is sharded by its own keys, too, and nothing about the child's own children.
func TestCopiedLabelsMeanNothing(t *testing.T) {
	for _, o := range []Options{{Mode: SlotLabel}, {Mode: SlotLabel, Key: slot.KeyNamespace},
		{Mode: ShardSelector}} {
		s := New(o)
		leafKind := schema.GroupKind{Kind: "Leaf"}
		for _, kind := range []schema.GroupKind{siteKind, childKind} {
			require.NoError(t, s.Shard(kind))
		}
		if !s.Own(childKind, siteKind, true) || !s.Own(leafKind, childKind, true) {
			t.Fatal("not owned")
		}
		seen := map[string]schema.GroupKind{}
		for _, kind := range []schema.GroupKind{siteKind, childKind, leafKind} {
			for _, label := range s.Labels(kind) {
				if other, taken := seen[label]; taken {
					t.Errorf("%v: %s means something on %s and on %s", o.Mode, label, other, kind)
				}
				seen[label] = kind
			}
		}
	}
}

// Labels that are written before they are asked for select nothing.
func TestLabelsInPreparation(t *testing.T) {
	s := New(Options{Mode: Filter, Label: true})
	owner, child := schema.GroupKind{Kind: "Site"}, schema.GroupKind{Kind: "ConfigMap"}
	s.Own(child, owner, true)
	sc := s.Scope(child, Role{Owners: map[schema.GroupKind]bool{owner: true}})
	var o Request
	sc.Narrow(&o, slot.SetOf(slot.Range{First: 0, Last: 3}))
	if o.LabelSelector != "" {
		t.Errorf("Filter with Label selects owned kinds by %q", o.LabelSelector)
	}
}

// The label of an object whose name the API server is to make is not known.
func TestStampOfAGeneratedName(t *testing.T) {
	s := New(Options{Mode: SlotLabel})
	kind := schema.GroupKind{Kind: "Site"}
	require.NoError(t, s.Shard(kind))
	before := s.Stamps(kind, &metav1.ObjectMeta{Namespace: "a", GenerateName: "x-"})
	after := s.Stamps(kind, &metav1.ObjectMeta{Namespace: "a", Name: "x-12345"})
	if len(before) > 0 {
		t.Errorf("stamped before its name is known: %v; with it: %v", before, after)
	}
}
