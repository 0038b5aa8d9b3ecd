package delivery_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
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

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
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
			{APIVersion: "example.com/v1beta1", Kind: "Site", Name: owner, UID: uidOf(owner), Controller: ptr.To(true)},
		}
	}
	return cm
}

// uidOf is a Site's UID. Those of short similar strings would all lie in one slot.
func uidOf(site string) types.UID {
	return types.UID(fmt.Sprintf("%016x-%s", slot.HashName("uid", site), site))
}

func ownerOf(obj any) string {
	if ref := metav1.GetControllerOfNoCopy(obj.(metav1.Object)); ref != nil {
		return ref.Name
	}
	return ""
}

// family is a share of ConfigMaps by the Sites that control them, and a level-triggered reconciler of Sites.
type family struct {
	t             *testing.T
	server        *deliverytest.Memory
	faults        *deliverytest.Faulty
	share         *delivery.Share
	informer      cache.SharedIndexInformer
	clusterScoped bool // of Sites
	key           slot.Key

	mu sync.Mutex
	// seen are the children of each Site, with their versions, as its last reconcile saw them.
	seen map[string]map[string]string
	// heard is everything that the handler was told.
	heard []word
}

// word is what a handler was told of a child: a state of it, or that it is gone.
type word struct {
	name, owner, version string
	uid                  types.UID
	gone                 bool
}

func (f *family) hear(obj any, gone bool) {
	cm := obj.(*corev1.ConfigMap)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = append(f.heard, word{cm.Name, ownerOf(cm), cm.ResourceVersion, cm.UID, gone})
}

func newFamily(t *testing.T, o delivery.Options, watchList bool) *family {
	t.Helper()
	o.Slots, o.Patience = 8, 100*time.Millisecond
	server := deliverytest.NewMemory()
	server.WatchList = watchList
	f := &family{
		t: t, server: server, faults: deliverytest.NewFaulty(server.ListWatch("", ""), watchList),
		seen:  map[string]map[string]string{},
		share: delivery.New(o), clusterScoped: o.Key == slot.KeyNamespace, key: o.Key,
	}
	require.NoError(t, f.share.Shard(siteKind))
	if !f.share.Own(childKind, siteKind, !f.clusterScoped) {
		t.Fatal("not owned")
	}
	f.informer = f.share.NewInformer(childKind, f.faults, &corev1.ConfigMap{}, deliverytest.Never, cache.Indexers{
		"owner": func(obj any) ([]string, error) { return []string{ownerOf(obj)}, nil },
	})
	_, err := f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			f.hear(obj, false)
			f.reconcile(ownerOf(obj))
		},
		UpdateFunc: func(old, obj any) {
			f.hear(obj, false)
			f.reconcile(ownerOf(old))
			f.reconcile(ownerOf(obj))
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			f.hear(obj, true)
			f.reconcile(ownerOf(obj))
		},
	})
	require.NoError(t, err)
	return f
}

// run runs the informer until the test ends.
func (f *family) run() {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f.informer.RunWithContext(ctx) })
	f.t.Cleanup(func() { cancel(); wg.Wait() })
	if !deliverytest.Synced(ctx, f.informer) {
		f.t.Fatal("informer does not sync")
	}
}

// put creates or changes a child with the labels that it should have.
func (f *family) put(name, owner string) deliverytest.Object {
	cm := child(name, owner)
	cm.Labels = f.share.Stamps(childKind, cm)
	return f.server.Put(cm)
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

// site is the name of a Site. With key Namespace they are cluster-scoped, or all of them would lie in one slot.
func (f *family) site(name string) types.NamespacedName {
	if f.clusterScoped {
		return types.NamespacedName{Name: name}
	}
	return types.NamespacedName{Namespace: "a", Name: name}
}

func (f *family) slotOf(site string) slot.Slot {
	return f.share.Slot(f.site(site).Namespace, site, string(uidOf(site)))
}

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
	// What happens to a child whose label is wrong comes late, by up to a minute on a machine that has time.
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); <-time.After(2 * time.Millisecond) {
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
	ways(t, func(t *testing.T, o delivery.Options, watchList bool) {
		f := newFamily(t, o, watchList)
		f.run()
		mine, theirs := f.sites(2, 1), f.sites(1, 2)[0]
		a := f.put("one", mine[0])
		f.put("two", theirs)
		f.put("three", "")
		f.own(only(1))
		f.reconcile(mine[0]) // as all Sites of the slot are when it opens
		f.eventually(map[string]map[string]string{mine[0]: {"one": a.Version}})
		// A child comes, changes its owner within the slot, leaves for another member's, comes back, is orphaned, adopted,
		// deleted.
		for _, owner := range []string{mine[0], mine[1], theirs, mine[0], "", mine[1]} {
			v := f.put("four", owner).Version
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
		require.NoError(t, f.share.Warm(t.Context(), only(2)))
		if _, err := f.server.Delete(t.Context(), types.NamespacedName{Namespace: "a", Name: "two"}); err != nil {
			t.Fatal(err)
		}
		five := f.put("five", theirs).Version
		if err := f.share.Load(t.Context(), only(2), table.CauseHanded, table.Versions{childKind.String(): five},
			false); err != nil {
			t.Fatal(err)
		}
		if got := f.share.Open(only(2))[siteKind].Changed; !slices.Equal(got, []types.NamespacedName{f.site(theirs)}) {
			t.Errorf("Open returns %v as changed, want %s", got, theirs)
		}
		f.reconcile(theirs)
		f.share.Release(only(1))
		f.eventually(map[string]map[string]string{theirs: {"five": five}})
	})
}

// ways runs a test for every mode of delivery and key.
func ways(t *testing.T, test func(t *testing.T, o delivery.Options, watchList bool)) {
	for _, o := range []delivery.Options{
		{Mode: sharding.Filter, Key: slot.KeyName}, {Mode: sharding.Filter, Key: slot.KeyUID},
		{Mode: sharding.SlotLabel, Key: slot.KeyName}, {Mode: sharding.SlotLabel, Key: slot.KeyNamespace},
		{Mode: sharding.ShardSelector, Key: slot.KeyUID},
	} {
		for _, watchList := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/%v/WatchList=%v", o.Mode, o.Key, watchList), func(t *testing.T) {
				t.Parallel()
				test(t, o, watchList)
			})
		}
	}
}

// A child is absent if no member has it, which only a watch of all children shows, and no list that is older.
func TestAbsent(t *testing.T) {
	ways(t, func(t *testing.T, o delivery.Options, watchList bool) {
		f := newFamily(t, o, watchList)
		f.share.KeepNames()
		mine, theirs := f.sites(1, 1)[0], f.sites(1, 2)[0]
		f.put("mine", mine)
		f.put("theirs", theirs)
		f.put("orphan", "")
		remove := func(name string) {
			_, err := f.server.Delete(t.Context(), types.NamespacedName{Namespace: "a", Name: name})
			require.NoError(t, err)
		}
		check := func(when string, absent ...string) {
			t.Helper()
			require.NoError(t, f.share.Reached(t.Context(), table.Versions{childKind.String(): f.server.Tick()}))
			for _, name := range []string{"mine", "theirs", "orphan", "came", "never"} {
				want := slices.Contains(absent, name) && o.Mode == sharding.Filter
				if got := f.share.Absent(childKind, types.NamespacedName{Namespace: "a", Name: name}); got != want {
					t.Errorf("%s %s is absent: %t, want %t", when, name, got, want)
				}
			}
		}
		f.run()
		check("without a list")
		inList, release := f.faults.HoldLists()
		f.share.Hold(only(1))
		loaded := make(chan error)
		go func() { loaded <- f.share.Load(t.Context(), only(1), table.CauseExpelled, nil, false) }()
		<-inList
		f.put("came", theirs) // the list does not show it
		require.NoError(t, f.share.Reached(t.Context(), table.Versions{childKind.String(): f.server.Tick()}))
		release()
		require.NoError(t, <-loaded)
		check("listed,", "never")
		remove("theirs")
		remove("orphan")
		check("deleted,", "theirs", "orphan", "never")
		f.put("orphan", "")
		f.share.Release(only(1))
		check("released,", "theirs", "never")
		f.faults.Expire()
		f.put("theirs", theirs)
		remove("came")
		f.own(only(1))
		check("listed again,", "came", "never")
	})
}

// A slot that was gained may be newer than the watch, and its former owner may have made children that lie elsewhere.
func TestAbsentWhereTheWatchIsBehind(t *testing.T) {
	f := newFamily(t, delivery.Options{Mode: sharding.Filter, Key: slot.KeyName}, false)
	f.share.KeepNames()
	f.run()
	f.own(only(1))
	resume := f.faults.Pause()
	came := types.NamespacedName{Namespace: "a", Name: "came"}
	v := f.put(came.Name, "").Version
	f.share.Hold(only(2))
	require.NoError(t, f.share.Load(t.Context(), only(2), table.CauseHanded, table.Versions{childKind.String(): v}, false))
	if f.share.Absent(childKind, came) {
		t.Error("a child is absent that was made before its maker's slot was handed over")
	}
	resume()
	require.NoError(t, f.share.Reached(t.Context(), table.Versions{childKind.String(): f.server.Tick()}))
	if never := (types.NamespacedName{Namespace: "a", Name: "never"}); !f.share.Absent(childKind, never) {
		t.Error("once the watch has caught up, a child is not absent that never was")
	}
	// What a reconcile made elsewhere goes with its slot.
	defer f.faults.Pause()()
	made := child("made", "")
	made.ResourceVersion = f.put(made.Name, "").Version
	f.share.Write(childKind, types.NamespacedName{Namespace: "a", Name: made.Name}, nil, 2).Answered(made)
	if got := f.share.Versions(only(2))[childKind.String()]; got != made.ResourceVersion {
		t.Errorf("the next owner has to reach version %s, want %s, of a child without an owner", got, made.ResourceVersion)
	}
}
