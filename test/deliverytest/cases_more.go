package deliverytest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// sees says whether the last reconcile of a key saw a version.
func (r *rig) sees(key types.NamespacedName, version string) error {
	got, reconciled := r.heard.levels()[key]
	if !reconciled || got != version {
		return fmt.Errorf("%v: the last reconcile saw %q (%v), want %q", key, got, reconciled, version)
	}
	return nil
}

// wantSeen waits until the last reconcile of a key saw a version; "" if it is gone.
func (r *rig) wantSeen(key types.NamespacedName, version string) {
	r.t.Helper()
	r.eventually(func() error { return r.sees(key, version) })
}

// dropBeacons forgets the additions of objects that sync made: of all but some keys.
func (h *recorder) dropBeacons(but ...types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = slices.DeleteFunc(h.events, func(e event) bool { return e.what == "add" && !slices.Contains(but, e.key) })
	h.taken = min(h.taken, len(h.events))
}

// noDeletions checks that no deletion was heard but of some objects.
func (r *rig) noDeletions(but ...types.NamespacedName) {
	r.t.Helper()
	for _, e := range r.heard.history() {
		if e.what == "delete" && !slices.Contains(but, e.key) {
			r.t.Errorf("heard a deletion that never was: %v", e)
		}
	}
}

// wantDigest compares the digest of a slot with what the server has.
func (r *rig) wantDigest(n slot.Slot) {
	r.t.Helper()
	want := sharding.Digest{}
	objects, _, err := r.kind.Client.List(r.ctx)
	r.must(err)
	for _, obj := range objects {
		if obj.Labels[label] == r.label && r.slot(obj) == n {
			want.Objects++
			want.Hashes ^= r.hashed.Hash(obj.Key.Namespace, obj.Key.Name, string(obj.UID))
		}
	}
	if got := r.share.Digest(only(n))[r.kind.GroupKind][n]; got != want {
		r.t.Errorf("digest %+v, want %+v", got, want)
	}
}

func (s suite) goneListsOnce(t *testing.T) {
	r := s.rig(t)
	keys := r.fill(3, 1)
	r.fill(3, 2)
	r.run(r.informer)
	r.own(only(1))
	lists := r.faults.Counts().Lists
	if r.kind.Compact != nil {
		resume := r.faults.Pause()
		r.delete(keys[0])
		r.faults.Cut()
		r.kind.Compact()
		resume()
	} else {
		r.delete(keys[0])
		r.faults.Expire()
	}
	r.wantSeen(keys[0], "")
	r.wantHeard("delete " + keys[0].String())
	r.sync()
	r.wantStore(only(1))
	if again := r.faults.Counts().Lists; r.kind.Compact != nil && again != lists+1 {
		t.Errorf("%d lists after 410 Gone, want 1", again-lists)
	}
}

func (s suite) watchDrops(t *testing.T) {
	r := s.rig(t)
	r.run(r.informer)
	r.own(only(0, 1, 2, 3))
	lists := r.faults.Counts().Lists
	for range 20 {
		keys := r.fill(1, 0, 2, 5)
		r.faults.Cut()
		r.update(keys[0])
		r.delete(keys[1])
	}
	r.sync()
	r.wantStore(only(0, 1, 2, 3))
	if again := r.faults.Counts().Lists; again != lists {
		t.Errorf("%d lists because of lost connections", again-lists)
	}
	r.wantLevel(only(0, 1, 2, 3))
}

// wantLevel checks that the last reconcile of every object saw its last state.
func (r *rig) wantLevel(set slot.Set) {
	r.t.Helper()
	r.eventually(func() error {
		for key, version := range r.truth(set) {
			if err := r.sees(key, version); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s suite) listErrors(t *testing.T) {
	r := s.rig(t)
	r.fill(2, 1)
	r.run(r.informer)
	r.faults.FailLists(apierrors.NewTooManyRequests("slow down", 0), apierrors.NewInternalError(errors.New("oops")),
		apierrors.NewResourceExpired("the page is gone"))
	r.must(r.warm(r.ctx, only(1)))
	r.wantStore(only(1))
	_, release := r.faults.HoldLists()
	defer release()
	ctx, cancel := context.WithTimeout(r.ctx, 20*time.Millisecond)
	defer cancel()
	if err := r.warm(ctx, only(2)); err == nil {
		t.Error("Warm outlives its context")
	}
}

func (s suite) releaseEndsWarm(t *testing.T) {
	r := s.rig(t)
	r.fill(2, 1, 2)
	r.run(r.informer)
	held, release := r.faults.HoldLists()
	done := make(chan error, 1)
	go func() { done <- r.warm(r.ctx, only(1, 2)) }()
	<-held
	r.share.Release(only(1))
	if err := <-done; !errors.Is(err, delivery.ErrReleased) {
		t.Errorf("Warm: %v", err)
	}
	release()
	r.wantStore(only(2))
}

// heardOf waits until a handler has heard of keys.
func (r *rig) heardOf(h *recorder, keys ...types.NamespacedName) {
	r.t.Helper()
	r.eventually(func() error {
		levels := h.levels()
		for _, key := range keys {
			if _, ok := levels[key]; !ok {
				return fmt.Errorf("a late handler did not hear of %v", key)
			}
		}
		return nil
	})
}

func (s suite) lateInformer(t *testing.T) {
	r := s.rig(t)
	keys := r.fill(2, 1)
	r.fill(2, 2)
	r.run(r.informer)
	r.own(only(1))
	late, _ := r.newInformer("")
	heard := r.listen(late)
	r.run(late)
	if got := slices.SortedFunc(maps.Keys(store(late)), compareNames); !cmp.Equal(got, keys) {
		t.Errorf("late informer (-want +got):\n%s", cmp.Diff(keys, got))
	}
	r.eventually(func() error {
		if n := len(heard.history()); n != 2 {
			return fmt.Errorf("heard %d events, want 2", n)
		}
		return nil
	})
	r.share.Release(only(1))
	r.own(only(2))
	fresh := r.create(r.key(2)).Key
	r.heardOf(heard, fresh)
}

func (s suite) severalInformers(t *testing.T) {
	r := s.rig(t)
	if len(r.kind.Namespaces) < 2 {
		t.Skip("a cluster-scoped kind")
	}
	a, _ := r.newInformer(r.kind.Namespaces[0])
	b, _ := r.newInformer(r.kind.Namespaces[1])
	keys := r.fill(4, 1)
	r.run(a, b)
	r.must(r.warm(r.ctx, only(1)))
	gone := r.delete(keys[0])
	version := r.update(keys[1]).Version
	r.must(r.share.Load(r.ctx, only(1), table.CauseHanded, table.Versions{r.kind.GroupKind.String(): version}, false))
	r.wantDigest(1)
	opened := r.share.Open(only(1))[r.kind.GroupKind]
	if got := opened.All(); len(got) != len(keys) {
		t.Errorf("Open returns %v, want %v", got, keys)
	}
	// What changed since the slot was warmed comes before what did not.
	if !slices.Equal(opened.Deleted, []types.NamespacedName{gone.Key}) ||
		!slices.Equal(opened.Changed, []types.NamespacedName{keys[1]}) {
		t.Errorf("Open returns %v as deleted and %v as changed, want %v and %v", opened.Deleted, opened.Changed, gone.Key,
			keys[1])
	}
	for _, key := range keys[1:] {
		if !r.share.Exists(r.kind.GroupKind, key) {
			t.Errorf("%v does not exist", key)
		}
	}
	if r.share.Exists(r.kind.GroupKind, gone.Key) {
		t.Error("exists although deleted")
	}
}

func (s suite) transform(t *testing.T) {
	r := s.rig(t)
	inf, _ := r.newInformer("")
	r.must(inf.SetTransform(nil))
	r.must(inf.SetTransform(func(obj any) (any, error) {
		about, err := meta.Accessor(obj)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(r.kind.Namespaces, about.GetNamespace()) ||
			about.GetLabels()[label] == "" && len(about.GetLabels()) == 0 && about.GetName() == "" {
			return nil, fmt.Errorf("transform of a strange object %v", obj)
		}
		about.SetLabels(map[string]string{"transformed": "yes"})
		return obj, nil
	}))
	r.fill(1, 1)
	r.run(inf)
	r.must(r.warm(r.ctx, only(1)))
	r.fill(1, 1)
	r.eventually(func() error {
		if n := len(inf.GetStore().List()); n != 2 {
			return fmt.Errorf("%d objects, want 2", n)
		}
		return nil
	})
	for _, obj := range inf.GetStore().List() {
		if about, _ := meta.Accessor(obj); about.GetLabels()["transformed"] != "yes" {
			t.Errorf("not transformed: %v", obj)
		}
	}
	r.share.Release(only(1))
	r.eventually(func() error {
		if n := len(inf.GetStore().List()); n != 0 {
			return fmt.Errorf("%d objects, want 0", n)
		}
		return nil
	})
}

// An informer of a whole kind may start after a handover, with the first read. It begins with what is there, and not
// with what a cache of an API server shows that lags.
func (s suite) wholeKindsBeginWithNow(t *testing.T) {
	r := s.rig(t)
	keys := r.fill(2, 1, 2)
	changed := r.update(keys[0])
	r.delete(keys[1])
	other := schema.GroupKind{Group: "example.com", Kind: "Undeclared"}
	listWatch := func() cache.ListerWatcher { return NewFaulty(r.kind.ListWatch("", r.selector()), r.watchList) }
	for what, inf := range map[string]cache.SharedIndexInformer{
		"of a kind that is not sharded": r.share.NewInformer(other, listWatch(), r.kind.Example.DeepCopyObject(), 0, nil),
		"beside those of the share": r.share.NewWholeInformer(r.kind.GroupKind, listWatch(),
			r.kind.Example.DeepCopyObject(), 0, nil),
	} {
		r.run(inf)
		if n := len(inf.GetStore().ListKeys()); n != len(keys)-1 {
			t.Errorf("an informer %s begins with %d objects, want %d", what, n, len(keys)-1)
		}
		obj, there, err := inf.GetStore().GetByKey(cache.NamespacedNameAsObjectName(keys[0]).String())
		if err != nil || !there || objectOfAny(obj).Version != changed.Version {
			t.Errorf("an informer %s begins with %v (%v, %v), want version %s", what, obj, there, err, changed.Version)
		}
	}
}

func (s suite) undeclared(t *testing.T) {
	r := s.rig(t)
	other := schema.GroupKind{Group: "example.com", Kind: "Undeclared"}
	faults := NewFaulty(r.kind.ListWatch("", r.selector()), r.watchList)
	inf := r.share.NewInformer(other, faults, r.kind.Example.DeepCopyObject(), 0, cache.Indexers{})
	heard := r.listen(inf)
	keys := r.fill(2, 1, 2)
	r.run(inf)
	r.eventually(func() error {
		if n := len(heard.history()); n != len(keys) {
			return fmt.Errorf("heard %d events, want %d", n, len(keys))
		}
		return nil
	})
	r.delete(keys[0])
	r.eventually(func() error {
		if v, ok := heard.levels()[keys[0]]; !ok || v != "" {
			return errors.New("the deletion was not heard")
		}
		return nil
	})
	if err := r.share.Shard(other); err == nil {
		t.Error("a kind was sharded although an informer of it runs")
	}
}
