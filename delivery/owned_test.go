package delivery_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/delivery/deliverytest"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

var (
	siteKind  = schema.GroupKind{Group: "example.com", Kind: "Site"}
	childKind = schema.GroupKind{Kind: "ConfigMap"}
)

// child is a ConfigMap that a Site controls; none if owner is "".
func child(name, owner string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
	if owner != "" {
		cm.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Site", Name: "of another group", UID: "0"},
			{APIVersion: "example.com/v1beta1", Kind: "Site", Name: owner, UID: types.UID("uid-" + owner), Controller: ptr.To(true)},
		}
	}
	return cm
}

func ownerOf(obj any) string {
	if ref := metav1.GetControllerOfNoCopy(obj.(metav1.Object)); ref != nil {
		return ref.Name
	}
	return ""
}

// family is a share of ConfigMaps by the Sites that control them, and a level-triggered reconciler of Sites.
type family struct {
	t        *testing.T
	server   *deliverytest.Memory
	faults   *deliverytest.Faulty
	share    *delivery.Share
	informer cache.SharedIndexInformer

	mu sync.Mutex
	// seen are the children of each Site, with their versions, as its last reconcile saw them.
	seen map[string]map[string]string
}

func newFamily(t *testing.T, key slot.Key, watchList bool) *family {
	t.Helper()
	server := deliverytest.NewMemory()
	server.WatchList = watchList
	f := &family{
		t: t, server: server, faults: deliverytest.NewFaulty(server.ListWatch("", ""), watchList), seen: map[string]map[string]string{},
		share: delivery.New(delivery.Options{Slots: 8, Key: key, Patience: 100 * time.Millisecond}),
	}
	if err := f.share.Shard(siteKind); err != nil {
		t.Fatal(err)
	}
	if !f.share.Own(childKind, siteKind, true) {
		t.Fatal("not owned")
	}
	f.informer = f.share.NewInformer(childKind, f.faults, &corev1.ConfigMap{}, 0, cache.Indexers{
		"owner": func(obj any) ([]string, error) { return []string{ownerOf(obj)}, nil },
	})
	_, err := f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { f.reconcile(ownerOf(obj)) },
		UpdateFunc: func(old, obj any) {
			f.reconcile(ownerOf(old))
			f.reconcile(ownerOf(obj))
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			f.reconcile(ownerOf(obj))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f.informer.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	if !cache.WaitFor(ctx, "", f.informer.HasSyncedChecker()) {
		t.Fatal("informer does not sync")
	}
	return f
}

func (f *family) reconcile(site string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	objects, err := f.informer.GetIndexer().ByIndex("owner", site)
	if err != nil {
		f.t.Error(err)
	}
	f.seen[site] = map[string]string{}
	for _, obj := range objects {
		cm := obj.(*corev1.ConfigMap)
		f.seen[site][cm.Name] = cm.ResourceVersion
	}
}

func (f *family) slotOf(site string) slot.Slot { return f.share.Slot("a", site, "uid-"+site) }

func only(slots ...slot.Slot) (set slot.Set) {
	for _, n := range slots {
		set.Add(n)
	}
	return set
}

// sites returns the names of n Sites in a slot.
func (f *family) sites(n int, in slot.Slot) []string {
	var names []string
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprintf("s%d", i); f.slotOf(name) == in {
			names = append(names, name)
		}
	}
	return names
}

func (f *family) own(set slot.Set) {
	f.t.Helper()
	f.share.Hold(set)
	if err := f.share.Load(f.t.Context(), set, table.CauseExpelled, nil, false); err != nil {
		f.t.Fatal(err)
	}
	f.open(set)
}

// open opens slots, and reconciles what Open returns.
func (f *family) open(set slot.Set) {
	for _, name := range f.share.Open(set)[siteKind].All() {
		f.reconcile(name.Name)
	}
}

// eventually waits until the store has exactly those children, and the last reconciles of the Sites saw theirs.
func (f *family) eventually(want map[string]map[string]string) {
	f.t.Helper()
	problem := ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(2 * time.Millisecond) {
		have := map[string]map[string]string{}
		for _, obj := range f.informer.GetStore().List() {
			cm := obj.(*corev1.ConfigMap)
			if have[ownerOf(cm)] == nil {
				have[ownerOf(cm)] = map[string]string{}
			}
			have[ownerOf(cm)][cm.Name] = cm.ResourceVersion
		}
		f.mu.Lock()
		seen := map[string]map[string]string{}
		for site := range want {
			seen[site] = maps.Clone(f.seen[site])
		}
		f.mu.Unlock()
		none := func(_ string, children map[string]string) bool { return len(children) == 0 }
		maps.DeleteFunc(seen, none)
		expect := maps.Clone(want)
		maps.DeleteFunc(expect, none)
		if problem = cmp.Diff(expect, have); problem != "" {
			problem = "store (-want +got):\n" + problem
		} else if problem = cmp.Diff(expect, seen); problem != "" {
			problem = "last reconciles (-want +got):\n" + problem
		} else {
			return
		}
	}
	f.t.Fatal(problem)
}

func TestOwnedKinds(t *testing.T) {
	for _, watchList := range []bool{false, true} {
		t.Run(fmt.Sprintf("WatchList=%v", watchList), func(t *testing.T) {
			f := newFamily(t, slot.KeyName, watchList)
			mine, theirs := f.sites(2, 1), f.sites(1, 2)[0]
			a := f.server.Put(child("one", mine[0]))
			f.server.Put(child("two", theirs))
			f.server.Put(child("three", ""))
			f.own(only(1))
			f.reconcile(mine[0]) // as all Sites of the slot are when it opens
			f.eventually(map[string]map[string]string{mine[0]: {"one": a.Version}})
			// A child comes, changes its owner within the slot, leaves for another member's, comes back, is orphaned, adopted, deleted.
			for _, owner := range []string{mine[0], mine[1], theirs, mine[0], "", mine[1]} {
				v := f.server.Put(child("four", owner)).Version
				want := map[string]map[string]string{mine[0]: {"one": a.Version}, mine[1]: {}}
				if slices.Contains(mine, owner) {
					want[owner]["four"] = v
				}
				f.eventually(want)
			}
			if _, err := f.server.Delete(t.Context(), types.NamespacedName{Namespace: "a", Name: "four"}); err != nil {
				t.Fatal(err)
			}
			f.eventually(map[string]map[string]string{mine[0]: {"one": a.Version}, mine[1]: {}})
			// What happens between warming and opening is told at opening.
			f.share.Hold(only(2))
			if err := f.share.Warm(t.Context(), only(2)); err != nil {
				t.Fatal(err)
			}
			if _, err := f.server.Delete(t.Context(), types.NamespacedName{Namespace: "a", Name: "two"}); err != nil {
				t.Fatal(err)
			}
			five := f.server.Put(child("five", theirs)).Version
			if err := f.share.Load(t.Context(), only(2), table.CauseHanded, table.Versions{childKind.String(): five}, false); err != nil {
				t.Fatal(err)
			}
			if got := f.share.Open(only(2))[siteKind].Changed; !slices.Equal(got, []types.NamespacedName{{Namespace: "a", Name: theirs}}) {
				t.Errorf("Open returns %v as changed, want %s", got, theirs)
			}
			f.reconcile(theirs)
			f.share.Release(only(1))
			f.eventually(map[string]map[string]string{theirs: {"five": five}})
		})
	}
}

// TestOwnedRandom changes owners and shares at random, under faults.
func TestOwnedRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(deliverytest.SeedVariable); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("%s=%d", deliverytest.SeedVariable, seed)
	for _, watchList := range []bool{false, true} {
		for _, key := range []slot.Key{slot.KeyName, slot.KeyUID} {
			t.Run(fmt.Sprintf("%v/WatchList=%v", key, watchList), func(t *testing.T) {
				t.Parallel()
				ownedRandom(t, rand.New(rand.NewPCG(seed, 0)), key, watchList)
			})
		}
	}
}

func ownedRandom(t *testing.T, rng *rand.Rand, key slot.Key, watchList bool) {
	f := newFamily(t, key, watchList)
	const sites, children = 16, 40
	owners := map[string]string{}  // of children that exist
	version := map[string]string{} // of children that exist
	var held, open slot.Set
	touch := func() {
		name := fmt.Sprintf("c%d", rng.IntN(children))
		switch _, exists := owners[name]; {
		case exists && rng.IntN(4) == 0:
			if _, err := f.server.Delete(t.Context(), types.NamespacedName{Namespace: "a", Name: name}); err != nil {
				t.Fatal(err)
			}
			delete(owners, name)
			delete(version, name)
		default:
			if !exists || rng.IntN(3) == 0 {
				owners[name] = ""
				if rng.IntN(6) > 0 {
					owners[name] = fmt.Sprintf("s%d", rng.IntN(sites))
				}
			}
			version[name] = f.server.Put(child(name, owners[name])).Version
		}
	}
	some := func(of slot.Set) (set slot.Set) {
		for _, n := range of.Slots() {
			if rng.IntN(2) == 0 {
				set.Add(n)
			}
		}
		return set
	}
	gone := 3
	for range 12 {
		for range 60 {
			touch()
			switch rng.IntN(12) {
			case 0, 1:
				set := some(only(0, 1, 2, 3, 4, 5, 6, 7).Minus(held))
				f.share.Hold(set)
				cause, versions := table.CauseExpelled, table.Versions(nil)
				if rng.IntN(2) == 0 {
					touch()
					cause, versions = table.CauseHanded, table.Versions{childKind.String(): newest(version)}
				}
				if err := f.share.Load(t.Context(), set, cause, versions, false); err != nil {
					t.Fatal(err)
				}
				held = held.Union(set)
			case 2, 3:
				set := some(held.Minus(open))
				f.open(set)
				for i := range sites { // as all Sites of a slot are, when it opens
					if name := fmt.Sprintf("s%d", i); set.Has(f.slotOf(name)) {
						f.reconcile(name)
					}
				}
				open = open.Union(set)
			case 4:
				set := some(open)
				f.share.Shut(set)
				open = open.Minus(set)
			case 5:
				set := some(held)
				f.share.Release(set)
				held, open = held.Minus(set), open.Minus(set)
			case 6:
				f.faults.Cut()
			case 7:
				if gone--; gone >= 0 {
					f.faults.Expire()
				}
			}
		}
		want := map[string]map[string]string{}
		f.open(held) // the store has to be right for all slots held
		for i := range sites {
			if name := fmt.Sprintf("s%d", i); held.Has(f.slotOf(name)) {
				if want[name] = map[string]string{}; !open.Has(f.slotOf(name)) {
					f.reconcile(name)
				}
			}
		}
		open = held
		for name, owner := range owners {
			if want[owner] != nil {
				want[owner][name] = version[name]
			}
		}
		f.eventually(want)
	}
}

func newest(versions map[string]string) string {
	top := ""
	for _, v := range versions {
		if table.CompareVersions(top, v) < 0 {
			top = v
		}
	}
	return top
}
