package sharding

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

var (
	siteKind  = schema.GroupKind{Group: "example.com", Kind: "Site"}
	childKind = schema.GroupKind{Kind: "ConfigMap"}
)

// child is an object that a Site of that name controls; "": none does.
func child(name, owner string) *metav1.ObjectMeta {
	about := &metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name + "-1")}
	if owner != "" {
		about.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Site", Name: "of another group", UID: "0"},
			{APIVersion: "example.com/v1beta1", Kind: "Site", Name: owner, UID: types.UID(owner + "-1"), Controller: ptr.To(true)},
		}
	}
	return about
}

func TestRoles(t *testing.T) {
	s := New(Options{})
	slots := func(owner string) []slot.Slot { return s.Slots(childKind, child("x", owner)) }
	own, owners := s.Slot("a", "x", ""), s.Slot("a", "site", "")
	if _, ok := s.SlotOf(childKind, child("x", "site")); ok || slots("site") != nil {
		t.Error("an object of an undeclared kind has a slot")
	}
	if !s.Own(childKind, siteKind, true) || !s.Own(childKind, schema.GroupKind{Kind: "Gadget"}, false) {
		t.Error("a kind can be owned by several kinds")
	}
	if n, ok := s.SlotOf(childKind, child("x", "site")); !ok || n != owners ||
		!slices.Equal(slots("site"), []slot.Slot{owners}) {
		t.Errorf("slot %v %v, want that of the owner, %v", n, ok, owners)
	}
	require.NoError(t, s.Shard(childKind))
	if n, ok := s.SlotOf(childKind, child("x", "site")); !ok || n != own ||
		!slices.Equal(slots("site"), []slot.Slot{own, owners}) {
		t.Errorf("slots %v %v %v, want its own, %v, and that of the owner, %v", n, ok, slots("site"), own, owners)
	}
	if !slices.Equal(slots(""), []slot.Slot{own}) {
		t.Errorf("slots %v without owner", slots(""))
	}
	require.NoError(t, s.Disown(childKind))
	if !s.Sharded(childKind) || s.Owned(childKind) || !slices.Equal(slots("site"), []slot.Slot{own}) {
		t.Error("it is only primary now")
	}
	if !s.Own(childKind, siteKind, true) || !s.Owned(childKind) {
		t.Error("a primary kind can be owned")
	}
}

// A role does not change while an informer has it, and does once the last has stopped.
func TestRolesInUse(t *testing.T) {
	gadget := schema.GroupKind{Kind: "Gadget"}
	s := New(Options{})
	change := func(what string, allowed bool, by func() error) {
		t.Helper()
		if err := by(); (err == nil) != allowed {
			t.Errorf("%s: %v", what, err)
		}
	}
	own := func(owner schema.GroupKind) func() error {
		return func() error {
			if !s.Own(childKind, owner, true) {
				return s.Disown(childKind)
			}
			return nil
		}
	}
	if got := s.Use(childKind, false); got.Primary || got.Owned() {
		t.Errorf("role %v of a kind that was not declared", got)
	}
	change("shard what is cached whole", false, func() error { return s.Shard(childKind) })
	s.Disuse(childKind, false)
	change("shard", true, func() error { return s.Shard(childKind) })
	if got := s.Use(childKind, false); !got.Primary || got.Owned() {
		t.Errorf("role %v", got)
	}
	change("shard what is sharded", true, func() error { return s.Shard(childKind) })
	change("own beside the primary role", true, own(siteKind))
	if got := s.Use(childKind, true); got.Primary || !got.Owned() {
		t.Errorf("role %v", got)
	}
	change("own", false, own(gadget))
	change("disown", false, func() error { return s.Disown(childKind) })
	change("add orphans", false, func() error { return s.AddOrphans(childKind) })
	if r := s.Role(childKind); len(r.Owners) != 1 || r.Orphans || !r.Primary {
		t.Errorf("role %v: a refused change has left something", r)
	}
	s.Disuse(childKind, true)
	change("add orphans", true, func() error { return s.AddOrphans(childKind) })
	change("disown", true, func() error { return s.Disown(childKind) })
	change("add orphans of what is not owned", false, func() error { return s.AddOrphans(childKind) })
}
