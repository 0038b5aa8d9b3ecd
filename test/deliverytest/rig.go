package deliverytest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// Never is a period of resyncs for informers in a bubble of testing/synctest. Without resyncs, those of client-go 0.34
// wait for a channel that was not made in the bubble, and its time stands still.
const Never = 100_000 * time.Hour

// patience is how long the suite waits for what must come.
const patience = time.Minute

const slots = slot.Count(8)

// label is on every object that the suite makes, so that informers of cluster-scoped kinds see no others.
const label = "rota-suite"

// rig is a share with one informer of a kind, and one handler.
type rig struct {
	t         *testing.T
	ctx       context.Context //nolint:containedctx // the test's
	kind      Kind
	share     *delivery.Share
	informer  cache.SharedIndexInformer
	faults    *Faulty
	heard     *recorder
	reports   reports
	label     string
	watchList bool
	serial    int
	delivery  sharding.Mode
	hashed    slot.Key
	places    places
	// ownerLeaves: owners of slots that are warmed leave.
	ownerLeaves atomic.Bool
}

func (s suite) rig(t *testing.T) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	t.Cleanup(cancel)
	s.runs.Add(1)
	r := &rig{
		t: t, ctx: ctx, kind: s.kind(t), label: fmt.Sprintf("%d-%d", time.Now().UnixNano(), s.runs.Load()),
		watchList: s.watchList, delivery: s.delivery, hashed: slot.KeyName,
	}
	if s.delivery == sharding.ShardSelector {
		r.hashed = slot.KeyUID
	}
	r.share = s.share(delivery.Options{
		Slots: slots, Patience: s.follows, Mode: s.delivery, Key: r.hashed, Mislabelled: r.reports.add,
		Excuse: 200 * time.Millisecond, Leaves: func(slot.Slot) bool { return r.ownerLeaves.Load() },
		Completed: func(opened map[schema.GroupKind]delivery.Opened) {
			r.heard.reconcile(opened[r.kind.GroupKind].All()...)
		},
	})
	require.NoError(t, r.share.Shard(r.kind.GroupKind))
	r.informer, r.faults = r.newInformer("")
	r.heard = r.listen(r.informer)
	return r
}

func (r *rig) selector() string { return label + "=" + r.label }

func (r *rig) newInformer(namespace string) (cache.SharedIndexInformer, *Faulty) {
	faults := NewFaulty(r.kind.ListWatch(namespace, r.selector()), r.watchList)
	inf := r.share.NewInformer(r.kind.GroupKind, faults, r.kind.Example.DeepCopyObject(), 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	return inf, faults
}

// run runs informers until the test ends.
func (r *rig) run(informers ...cache.SharedIndexInformer) {
	r.t.Helper()
	for _, inf := range informers {
		ctx, cancel := context.WithCancel(r.ctx)
		var wg sync.WaitGroup
		wg.Go(func() { inf.RunWithContext(ctx) })
		r.t.Cleanup(func() { cancel(); wg.Wait() })
		if !Synced(ctx, inf) {
			r.t.Fatal("informer does not sync")
		}
	}
}

// Synced waits until an informer shows its first list, or until ctx ends: then it returns false. Unlike
// cache.WaitForCacheSync it looks every millisecond.
func Synced(ctx context.Context, inf cache.SharedInformer) bool {
	return wait.PollUntilContextCancel(ctx, time.Millisecond, true,
		func(context.Context) (bool, error) { return inf.HasSynced(), nil }) == nil
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func only(ns ...slot.Slot) slot.Set {
	var set slot.Set
	for _, n := range ns {
		set.Add(n)
	}
	return set
}

// warm holds slots and waits until the store does.
func (r *rig) warm(ctx context.Context, set slot.Set) error {
	r.share.Hold(set)
	return r.share.Warm(ctx, set)
}

// own warms, loads and opens slots.
func (r *rig) own(set slot.Set) {
	r.t.Helper()
	r.must(r.warm(r.ctx, set))
	r.must(r.share.Load(r.ctx, set, table.CauseAssigned, nil, false))
	r.open(set)
}

// open opens slots once the handlers have nothing left from before: what they are told late, they would hear.
func (r *rig) open(set slot.Set) []types.NamespacedName {
	r.t.Helper()
	r.settle()
	return r.openNow(set)
}

func (r *rig) openNow(set slot.Set) []types.NamespacedName {
	names := r.share.Open(set)[r.kind.GroupKind].All()
	slices.SortFunc(names, compareNames)
	r.heard.reconcile(names...)
	return names
}

func compareNames(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }

// key makes a new name in a slot.
func (r *rig) key(n slot.Slot) types.NamespacedName {
	if r.hashed == slot.KeyUID {
		return r.place(n)
	}
	for {
		key := r.name()
		if r.share.Slot(key.Namespace, key.Name, "") == n {
			return key
		}
	}
}

func (r *rig) name() types.NamespacedName {
	r.serial++
	return types.NamespacedName{
		Namespace: r.kind.Namespaces[r.serial%len(r.kind.Namespaces)], Name: "o" + strconv.Itoa(r.serial) + "-" + r.label,
	}
}

func (r *rig) create(key types.NamespacedName) Object {
	r.t.Helper()
	if r.hashed == slot.KeyUID {
		return r.createPlaced(key)
	}
	obj, err := r.kind.Client.Create(r.ctx, key, r.labels(key))
	r.must(err)
	return obj
}

// fill creates n objects in each of the slots.
func (r *rig) fill(n int, in ...slot.Slot) []types.NamespacedName {
	r.t.Helper()
	var keys []types.NamespacedName
	for _, s := range in {
		for range n {
			keys = append(keys, r.create(r.key(s)).Key)
		}
	}
	slices.SortFunc(keys, compareNames)
	return keys
}

func (r *rig) update(key types.NamespacedName) Object {
	r.t.Helper()
	obj, err := r.kind.Client.Update(r.ctx, key)
	r.must(err)
	return obj
}

func (r *rig) delete(key types.NamespacedName) Object {
	r.t.Helper()
	obj, err := r.kind.Client.Delete(r.ctx, key)
	r.must(err)
	return obj
}

// busy writes an object of a slot again and again until stop is called.
func (r *rig) busy(n slot.Slot) (stop func()) {
	r.t.Helper()
	key := r.create(r.key(n)).Key
	ctx, cancel := context.WithCancel(r.ctx)
	failed := make(chan error, 1)
	go func() {
		for {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				failed <- nil
				return
			}
			if _, err := r.kind.Client.Update(r.ctx, key); err != nil {
				failed <- err
				return
			}
		}
	}()
	return func() {
		r.t.Helper()
		cancel()
		r.must(<-failed)
	}
}

// sync returns when the handlers have been told of everything up to now. It makes an object for that, so that
// there is an event.
func (r *rig) sync() {
	r.t.Helper()
	n := slot.Slot(r.serial) % slot.Slot(slots)
	if held := r.share.Held(); !held.Empty() {
		n = held.Slots()[r.serial%held.Len()] // whose event comes at once
	}
	beacon := r.create(r.key(n))
	r.reached(beacon)
}

// reached waits until the handlers have been told of everything up to an object's version. A store changes before they
// are told.
func (r *rig) reached(obj Object) {
	r.t.Helper()
	r.must(r.share.Reached(r.ctx, table.Versions{r.kind.GroupKind.String(): obj.Version}))
}

// settle waits until the handlers have nothing left from before.
func (r *rig) settle() {
	r.t.Helper()
	r.reached(Object{Version: "0"})
}

// forget forgets what was heard, and what would be heard late of what came before.
func (r *rig) forget() {
	r.t.Helper()
	r.settle()
	r.heard.take()
}

// truth returns what the server has of the slots, in the form that store returns.
func (r *rig) truth(set slot.Set) map[types.NamespacedName]string {
	r.t.Helper()
	objects, _, err := r.kind.Client.List(r.ctx)
	r.must(err)
	out := map[types.NamespacedName]string{}
	for _, obj := range objects {
		if obj.Labels[label] == r.label && set.Has(r.slot(obj)) {
			out[obj.Key] = obj.Version
		}
	}
	return out
}

func store(inf cache.SharedIndexInformer) map[types.NamespacedName]string {
	out := map[types.NamespacedName]string{}
	for _, obj := range inf.GetStore().List() {
		about, err := meta.Accessor(obj)
		if err != nil {
			panic(err)
		}
		out[types.NamespacedName{Namespace: about.GetNamespace(), Name: about.GetName()}] = about.GetResourceVersion()
	}
	return out
}

// wantStore waits until the store holds exactly the objects of the slots.
func (r *rig) wantStore(set slot.Set) {
	r.t.Helper()
	r.eventually(func() error {
		if diff := cmp.Diff(r.truth(set), store(r.informer)); diff != "" {
			return fmt.Errorf("store (-want +got):\n%s", diff)
		}
		want := map[slot.Slot]sharding.Digest{}
		for _, obj := range r.informer.GetStore().List() {
			about := obj.(metav1.Object)
			if n, ok := r.share.SlotOf(r.kind.GroupKind, about); ok {
				want[n] = want[n].With(sharding.DigestHash(r.share.Key(), about))
			}
		}
		if diff := cmp.Diff(want, r.share.Digest(set)[r.kind.GroupKind]); diff != "" {
			return fmt.Errorf("digests (-store +told):\n%s", diff)
		}
		return nil
	})
}

// wantStoreNow checks that the store holds exactly the objects of the slots.
func (r *rig) wantStoreNow(set slot.Set) {
	r.t.Helper()
	if diff := cmp.Diff(r.truth(set), store(r.informer)); diff != "" {
		r.t.Errorf("store (-want +got):\n%s", diff)
	}
}

// wantOpen opens slots, and compares the keys that this returns.
func (r *rig) wantOpen(set slot.Set, want []types.NamespacedName) {
	r.t.Helper()
	if got := r.open(set); !cmp.Equal(got, want) {
		r.t.Errorf("Open (-want +got):\n%s", cmp.Diff(want, got))
	}
}

// listing begins something that lists, and returns once the server has answered. The answer arrives with finish.
func (r *rig) listing(do func() error) (finish func()) {
	held, release := r.faults.HoldLists()
	done := make(chan error, 1)
	go func() { done <- do() }()
	<-held
	return func() {
		r.t.Helper()
		release()
		r.must(<-done)
	}
}

// relists ends the watch by 410 Gone, and waits until the kind is listed again.
func (r *rig) relists() {
	r.t.Helper()
	before := r.faults.Counts().Lists
	r.faults.Expire()
	r.eventually(func() error {
		if lists := r.faults.Counts().Lists; lists == before {
			return errors.New("not listed again")
		}
		return nil
	})
}

// eventually tries a check until it succeeds.
func (r *rig) eventually(check func() error) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatal(err)
		}
		pace()
	}
}

// pace keeps polling from spinning.
func pace() { <-time.After(2 * time.Millisecond) }

// wantHeard compares the events heard since the last call, regardless of their order.
func (r *rig) wantHeard(want ...string) {
	r.t.Helper()
	got := r.heard.take()
	slices.Sort(got)
	slices.Sort(want)
	if !cmp.Equal(got, want, cmp.Transformer("", func(s []string) []string { return append([]string{}, s...) })) {
		r.t.Errorf("heard (-want +got):\n%s", cmp.Diff(want, got))
	}
}

// recorder is an event handler that notes what it hears, and reconciles as a level-triggered reconciler does: it looks
// at the store whenever a key comes up.
type recorder struct {
	r        *rig
	informer cache.SharedIndexInformer

	mu     sync.Mutex
	events []event
	taken  int
	level  map[types.NamespacedName]string // what the last reconcile saw; "": no object
	saw    map[types.NamespacedName]types.UID
}

type event struct {
	what    string // add, update, delete
	key     types.NamespacedName
	uid     types.UID
	version string
	resync  bool
}

func (r *rig) listen(inf cache.SharedIndexInformer) *recorder {
	r.t.Helper()
	rec := &recorder{r: r, informer: inf, level: map[types.NamespacedName]string{},
		saw: map[types.NamespacedName]types.UID{}}
	_, err := inf.AddEventHandler(rec)
	r.must(err)
	return rec
}

func (h *recorder) OnAdd(obj any, _ bool) { h.on("add", obj, false) }
func (h *recorder) OnUpdate(old, obj any) { h.on("update", obj, versionOf(old) == versionOf(obj)) }
func (h *recorder) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	h.on("delete", obj, false)
}

func versionOf(obj any) string {
	about, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	return about.GetResourceVersion()
}

func (h *recorder) on(what string, obj any, resync bool) {
	about, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	key := types.NamespacedName{Namespace: about.GetNamespace(), Name: about.GetName()}
	h.mu.Lock()
	h.events = append(h.events, event{what, key, about.GetUID(), about.GetResourceVersion(), resync})
	h.mu.Unlock()
	h.reconcile(key)
}

func (h *recorder) reconcile(keys ...types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		var seen Object
		obj, exists, err := h.informer.GetIndexer().GetByKey(cache.NewObjectName(key.Namespace, key.Name).String())
		if err == nil && exists {
			seen = objectOfAny(obj)
		}
		h.level[key], h.saw[key] = seen.Version, seen.UID
	}
}

// take returns the events since the last call as "add NAME", without updates that change nothing.
func (h *recorder) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := []string{}
	for _, e := range h.events[h.taken:] {
		if e.resync {
			continue
		}
		out = append(out, e.what+" "+e.key.String())
	}
	h.taken = len(h.events)
	return out
}

func (h *recorder) history() []event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// seen returns the UIDs of what the last reconciles saw.
func (h *recorder) seen() map[types.NamespacedName]types.UID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.saw)
}

func (h *recorder) levels() map[types.NamespacedName]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.level)
}

func objectOfAny(obj any) Object {
	about, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	return objectOf(about)
}
