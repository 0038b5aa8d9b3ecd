package delivery_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
)

// The table takes the keys of both roles.
func TestVersionsOfBothRoles(t *testing.T) {
	s := delivery.New(delivery.Options{Slots: 8})
	replicaSets := schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	require.NoError(t, s.Shard(replicaSets))
	if !s.Own(replicaSets, siteKind, true) {
		t.Fatal("not owned")
	}
	write := func(version, owner string) {
		obj := child("x", owner)
		obj.ResourceVersion = version
		s.Write(replicaSets, types.NamespacedName{Namespace: "a", Name: "x"}, nil).Answered(obj)
	}
	write("7", "site")
	write("9", "")
	n := s.Slot("a", "x", "")
	want := table.Versions{"ReplicaSet.apps": "9"}
	if own := s.Slot("a", "site", ""); own == n {
		want["ReplicaSet.apps/owned"] = "7"
	} else if diff := cmp.Diff(table.Versions{"ReplicaSet.apps/owned": "7"}, s.Versions(only(own))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, s.Versions(only(n))); diff != "" {
		t.Error(diff)
	}
	tab := table.New(8, slot.KeyName, 1)
	tab.Notes = map[uint64]table.Note{tab.Epoch: {Cause: table.CauseHanded,
		Versions: table.Versions{"ReplicaSet.apps/owned": "7"}}}
	require.NoError(t, tab.Valid())
	if diff := cmp.Diff(tab.Notes, mustDecode(t, tab).Notes); diff != "" {
		t.Error(diff)
	}
}

func mustDecode(t *testing.T, tab *table.Table) *table.Table {
	t.Helper()
	tab.UID = "u"
	out, err := table.Decode(table.Encode(tab))
	require.NoError(t, err)
	return out
}

// TestBothRoles: ConfigMaps are children of Sites and have a controller of their own in the same manager.
func TestBothRoles(t *testing.T) {
	server := deliverytest.NewMemory()
	share := delivery.New(delivery.Options{Slots: 8, Patience: 100 * time.Millisecond})
	require.NoError(t, share.Shard(siteKind))
	if !share.Own(childKind, siteKind, true) {
		t.Fatal("not owned")
	}
	require.NoError(t, share.Shard(childKind))
	primary := share.NewInformer(childKind, server.ListWatch("", ""), &corev1.ConfigMap{}, 0, nil)
	owned := share.NewOwnedInformer(childKind, server.ListWatch("", ""), &corev1.ConfigMap{}, 0, nil)
	sites := share.NewInformer(siteKind, deliverytest.NewMemory().ListWatch("", ""), &corev1.ConfigMap{}, 0, nil)
	names := func(inf cache.SharedIndexInformer) []string {
		keys := inf.GetStore().ListKeys()
		slices.Sort(keys)
		return keys
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); wg.Wait() })
	start := func(inf cache.SharedIndexInformer) {
		wg.Go(func() { inf.RunWithContext(ctx) })
		if !deliverytest.Synced(ctx, inf) {
			t.Fatal("informer does not sync")
		}
	}
	start(primary)
	start(sites)
	start(owned)
	if share.Own(childKind, schema.GroupKind{Kind: "Gadget"}, true) || share.Disown(childKind) == nil {
		t.Error("the role of a running informer was changed")
	}
	// name returns a new name in a slot.
	serial := 0
	name := func(n slot.Slot) string {
		for {
			serial++
			if name := "n" + slot.Slot(serial).String(); share.Slot("a", name, "") == n {
				return name
			}
		}
	}
	site := name(2)
	here := server.Put(child(name(1), site))  // of slots 1 and 2
	orphan := server.Put(child(name(1), ""))  // of slot 1
	there := server.Put(child(name(5), site)) // of slots 5 and 2
	far := name(6)
	elsewhere := server.Put(child(name(5), far)) // of slots 5 and 6
	load := func(n slot.Slot, versions table.Versions) map[schema.GroupKind]delivery.Opened {
		t.Helper()
		share.Hold(only(n))
		require.NoError(t, share.Load(t.Context(), only(n), table.CauseHanded, versions, false))
		return share.Open(only(n))
	}
	opened := load(1, nil)
	want := []types.NamespacedName{orphan.Key, here.Key} // the last one first
	if diff := cmp.Diff(want, opened[childKind].All()); diff != "" || len(opened[siteKind].All()) > 0 {
		t.Errorf("slot 1: opened %v, %s", opened, diff)
	}
	opened = load(2, nil)
	if len(opened[childKind].All()) > 0 {
		t.Errorf("slot 2: opened %v", opened)
	}
	check := func(inf cache.SharedIndexInformer, what string, want ...deliverytest.Object) {
		t.Helper()
		keys := []string{}
		for _, obj := range want {
			keys = append(keys, obj.Key.String())
		}
		slices.Sort(keys)
		if diff := cmp.Diff(keys, names(inf)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check(primary, "primary", here, orphan)
	check(owned, "owned", here, there)
	for _, obj := range []deliverytest.Object{here, orphan, there, elsewhere} {
		if got, want := share.Exists(childKind, obj.Key), obj.Key == here.Key || obj.Key == orphan.Key; got != want {
			t.Errorf("%v exists: %v, want %v", obj.Key, got, want)
		}
	}
	// What its stream carries is each role's own version.
	versions := share.Versions(only(1))
	if diff := cmp.Diff(table.Versions{childKind.String(): orphan.Version}, versions); diff != "" {
		t.Errorf("slot 1: %s", diff)
	}
	versions = share.Versions(only(2))
	if diff := cmp.Diff(table.Versions{childKind.String() + "/owned": there.Version}, versions); diff != "" {
		t.Errorf("slot 2: %s", diff)
	}
	// A child that is written while its owner's slot is on its way: the owner hears of it.
	share.Hold(only(6))
	require.NoError(t, share.Warm(t.Context(), only(6)))
	v := server.Put(child(elsewhere.Key.Name, far)).Version
	opened = load(6, table.Versions{childKind.String() + "/owned": v})
	if len(opened[siteKind].Changed) != 1 || len(opened[childKind].All()) > 0 {
		t.Errorf("slot 6: opened %v", opened)
	}
	if got := share.Digest(only(1, 2))[childKind][1].Objects; got != 2 {
		t.Errorf("%d objects in the digest of slot 1", got)
	}
	if got := share.Digest(only(1, 2))[childKind][2].Objects; got != 0 {
		t.Errorf("%d objects in the digest of slot 2, counted by their owners", got)
	}
}
