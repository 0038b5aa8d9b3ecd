package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
)

var errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("injected"))

// hookless has lists fail after a time, as where a conversion webhook does not answer. Watches go on.
type hookless struct {
	*deliverytest.Faulty
	down atomic.Bool
	// refuses answers lists at once; nil, or a nil error, lets them through.
	refuses atomic.Pointer[func(metav1.ListOptions) error]
}

func (h *hookless) refuse(err func(metav1.ListOptions) error) { h.refuses.Store(&err) }

func (h *hookless) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if refuses := h.refuses.Load(); refuses != nil {
		if err := (*refuses)(o); err != nil {
			return nil, err
		}
	}
	if !h.down.Load() {
		return h.Faulty.ListWithContext(ctx, o)
	}
	select {
	case <-time.After(30 * time.Second):
		return nil, apierrors.NewInternalError(errors.New("conversion webhook: timeout"))
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// R8: slots that a warm list went without a kind are shut while they are loaded, and do not wait for that kind again
// then, however long it takes until its next list fails. Once it can be listed, they have what was written before.
func TestR8LoadGoesWithoutWhatWarmDid(t *testing.T) {
	for name, fault := range map[string]func(h *hookless, on bool){
		"refused": func(h *hookless, on bool) {
			if on {
				h.Refuse(errForbidden)
			} else {
				h.Refuse(nil)
			}
		},
		"expired": func(h *hookless, on bool) { // its reflector waits between lists
			if on {
				h.Refuse(errForbidden)
				h.Expire()
			} else {
				h.Refuse(nil)
			}
		},
		"slow": func(h *hookless, on bool) { h.down.Store(on) },
	} {
		for what, load := range map[string]struct {
			cause   table.Cause
			version string
		}{
			"unnamed": {table.CauseHanded, ""}, "named": {table.CauseHanded, "7000"}, "list": {table.CauseHanded, table.List},
			"expelled": {table.CauseExpelled, ""},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					versions := table.Versions{}
					if load.version != "" {
						versions["ConfigMap"] = load.version
					}
					loadWithout(t, fault, load.cause, versions)
				})
			})
		}
	}
}

// lackingRig is a member that has listed a kind before, and a slot that it does not have, with a key in it.
type lackingRig struct {
	share  *delivery.Share
	server *deliverytest.Memory
	source *hookless
	kind   schema.GroupKind
	name   types.NamespacedName
	n      slot.Slot
	mine   slot.Set
	// stays: the slots' owner does not leave.
	stays atomic.Bool
}

func newLackingRig(ctx context.Context, t *testing.T) *lackingRig {
	t.Helper()
	r := startLackingRig(ctx, t)
	other := (r.n + 1) % 8
	r.warm(ctx, t, slot.SetOf(slot.Range{First: other, Last: other}))
	return r
}

// startLackingRig starts a member without slots.
func startLackingRig(ctx context.Context, t *testing.T) *lackingRig {
	t.Helper()
	r := &lackingRig{
		server: deliverytest.NewMemory(), kind: schema.GroupKind{Kind: "ConfigMap"}, name: types.NamespacedName{Namespace: "a", Name: "o"},
	}
	r.share = delivery.New(delivery.Options{Slots: 8, Leaves: func(slot.Slot) bool { return !r.stays.Load() }})
	require.NoError(t, r.share.Shard(r.kind))
	r.source = &hookless{Faulty: deliverytest.NewFaulty(r.server.ListWatch("", ""), false)}
	inf := r.share.NewInformer(r.kind, r.source, &corev1.ConfigMap{}, deliverytest.Never, cache.Indexers{})
	// client-go's own handler waits by a time that is not this test's.
	require.NoError(t, inf.SetWatchErrorHandler(func(*cache.Reflector, error) {}))
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { inf.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	if !cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) {
		t.Fatal("not synced")
	}
	r.n = r.share.Slot(r.name.Namespace, r.name.Name, "")
	r.mine = slot.SetOf(slot.Range{First: r.n, Last: r.n})
	return r
}

func (r *lackingRig) warm(ctx context.Context, t *testing.T, set slot.Set) {
	t.Helper()
	r.share.Hold(set)
	require.NoError(t, r.share.Warm(ctx, set))
}

func (r *lackingRig) load(ctx context.Context, t *testing.T, cause table.Cause, versions table.Versions) {
	t.Helper()
	begun := time.Now()
	require.NoError(t, r.share.Load(ctx, r.mine, cause, versions, false))
	if took := time.Since(begun); took > 50*time.Millisecond || !r.share.Lacks(r.kind, r.n) {
		t.Errorf("loaded in %v, lacks the kind: %v", took, r.share.Lacks(r.kind, r.n))
	}
}

func (r *lackingRig) complete(t *testing.T) {
	t.Helper()
	if lacks, exists := r.share.Lacks(r.kind, r.n), r.share.Exists(r.kind, r.name); lacks || !exists {
		t.Errorf("lacks the kind: %v, has the object: %v, although it can be listed again", lacks, exists)
	}
}

func loadWithout(t *testing.T, fault func(*hookless, bool), cause table.Cause, versions table.Versions) {
	r := newLackingRig(t.Context(), t)
	fault(r.source, true)
	r.warm(t.Context(), t, r.mine)
	<-time.After(5 * time.Minute) // backoffs have grown
	for range 5 {                 // at some time between two lists
		<-time.After(700 * time.Millisecond)
		r.load(t.Context(), t, cause, versions)
	}
	if _, err := r.server.Create(t.Context(), r.name, nil); err != nil {
		t.Fatal(err)
	}
	r.load(t.Context(), t, cause, versions)
	fault(r.source, false)
	<-time.After(5 * time.Minute)
	r.complete(t)
}

// R8: a list that began before the slot was handed over does not complete the kind, although it succeeds after that.
func TestR8ListsOlderThanALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLackingRig(t.Context(), t)
		r.source.Refuse(errForbidden)
		r.warm(t.Context(), t, r.mine)
		defer r.source.Pause()() // nothing comes but by lists
		inList, release := r.source.HoldLists()
		r.source.Refuse(nil)
		<-inList
		<-time.After(time.Minute) // the watch works again
		obj, err := r.server.Create(t.Context(), r.name, nil)
		require.NoError(t, err)
		r.load(t.Context(), t, table.CauseHanded, table.Versions{"ConfigMap": obj.Version})
		release()
		<-time.After(time.Minute)
		r.complete(t)
	})
}

// R8: that a list fails which was sent before a slot was wanted says nothing about the slot, however late its answer
// comes.
func TestR8LateFailuresAreNoExcuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLackingRig(t.Context(), t)
		if _, err := r.server.Create(t.Context(), r.name, nil); err != nil {
			t.Fatal(err)
		}
		r.source.down.Store(true)
		r.share.Hold(r.mine)
		wanted := make(chan error, 1)
		time.AfterFunc(40*time.Second, func() { // the second list is under way, and will be refused
			r.share.Release(r.mine)
			r.source.down.Store(false)
			r.share.Hold(r.mine)
			wanted <- r.share.Warm(t.Context(), r.mine)
		})
		if err := r.share.Warm(t.Context(), r.mine); err != nil || !r.share.Lacks(r.kind, r.n) {
			t.Fatalf("error %v, lacks a kind whose lists fail: %v", err, r.share.Lacks(r.kind, r.n))
		}
		if err := <-wanted; err != nil || r.share.Lacks(r.kind, r.n) {
			t.Errorf("error %v, lacks a kind that can be listed: %v", err, r.share.Lacks(r.kind, r.n))
		}
	})
}

// inconvertible refuses the lists that read an object which cannot be converted, as an API server does: consistent ones
// of more than the first object. Its watch cache still answers.
func inconvertible(o metav1.ListOptions) error {
	if o.Limit == 1 || o.ResourceVersionMatch == metav1.ResourceVersionMatchNotOlderThan {
		return nil
	}
	return apierrors.NewInternalError(errors.New("conversion webhook: o cannot be converted"))
}

// R8: where an object cannot be converted, slots of a dead owner have what the API server's watch cache holds. That the
// kind cannot be listed stays reported, until it can.
func TestR8WatchCacheAnswersWhereListsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLackingRig(t.Context(), t)
		if _, err := r.server.Create(t.Context(), r.name, nil); err != nil {
			t.Fatal(err)
		}
		r.source.refuse(inconvertible)
		r.share.Hold(r.mine)
		require.NoError(t, r.share.Load(t.Context(), r.mine, table.CauseExpelled, nil, false))
		r.complete(t)
		<-time.After(time.Minute) // it is listed again and again
		r.complete(t)
		if failing := r.share.Failing(); len(failing) != 1 || failing[0].Request != feed.RequestList {
			t.Errorf("failing: %v, want the list", failing)
		}
		r.source.refuse(func(metav1.ListOptions) error { return nil })
		<-time.After(time.Minute)
		r.complete(t)
		if failing := r.share.Failing(); len(failing) > 0 {
			t.Errorf("failing: %v, although it can be listed again", failing)
		}
	})
}

// R8: slots with objects from the watch cache do not wait for a version that the cache cannot have: its own watch is
// broken.
func TestR8WatchCacheThatStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLackingRig(t.Context(), t)
		if _, err := r.server.Create(t.Context(), r.name, nil); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		r.source.refuse(inconvertible)
		defer r.source.Pause()() // nothing comes any more
		r.share.Hold(r.mine)
		<-time.After(3 * time.Second)
		if _, err := r.server.Update(t.Context(), r.name); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		require.NoError(t, r.share.Load(t.Context(), r.mine, table.CauseExpelled, nil, false))
		if took := time.Since(begun); took > time.Second {
			t.Errorf("loaded in %v", took)
		}
		r.complete(t)
	})
}

// R8: a list of one object that succeeds, as of a member without slots, does not show that the kind can be listed. So a
// newcomer takes no slots from an owner, whether that one works or leaves.
func TestR8OneObjectIsNoList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startLackingRig(t.Context(), t)
		r.source.refuse(func(o metav1.ListOptions) error {
			if err := inconvertible(o); err != nil || o.Limit == 1 {
				return err
			}
			return apierrors.NewTooManyRequestsError("storage is (re)initializing")
		})
		r.share.Hold(r.mine)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := r.share.Warm(ctx, r.mine); err == nil {
			t.Error("took a slot from its owner without having listed the kind")
		}
	})
}

// R8: a kind whose lists are answered by 429 for long is not waited for. Its slots come when it can be listed.
func TestR8BusyKindIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLackingRig(t.Context(), t)
		if _, err := r.server.Create(t.Context(), r.name, nil); err != nil {
			t.Fatal(err)
		}
		r.source.refuse(func(metav1.ListOptions) error {
			return apierrors.NewTooManyRequestsError("storage is (re)initializing")
		})
		begun := time.Now()
		r.share.Hold(r.mine)
		require.NoError(t, r.share.Load(t.Context(), r.mine, table.CauseExpelled, nil, false))
		if took := time.Since(begun); took > 6*time.Second || !r.share.Lacks(r.kind, r.n) {
			t.Errorf("loaded in %v, lacks the kind: %v", took, r.share.Lacks(r.kind, r.n))
		}
		r.source.refuse(func(metav1.ListOptions) error { return nil })
		<-time.After(time.Minute)
		r.complete(t)
	})
}

// A failure names the object before the one that cannot be read, and the API server's reason, although watches and
// lists without pages are answered by 429.
func TestFailuresNameTheObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLackingRig(t.Context(), t)
		for i := range 40 {
			name := types.NamespacedName{Namespace: "a", Name: fmt.Sprintf("o%02d", i)}
			if _, err := r.server.Create(t.Context(), name, nil); err != nil {
				t.Fatal(err)
			}
		}
		r.source.refuse(func(o metav1.ListOptions) error {
			var from int
			if _, next, ok := strings.Cut(o.Continue, `"Next":"a/o`); ok {
				from, _ = strconv.Atoi(strings.TrimSuffix(next, `"}`))
			}
			switch {
			case o.Limit == 0:
				return apierrors.NewTooManyRequestsError("storage is (re)initializing")
			case from <= 17 && 17 < from+int(o.Limit):
				return apierrors.NewInternalError(errors.New("conversion webhook: cannot be converted"))
			}
			return nil
		})
		r.source.RefuseWatches(apierrors.NewTooManyRequestsError("storage is (re)initializing"))
		<-time.After(time.Minute)
		failing := r.share.Failing()
		if len(failing) != 1 || !strings.Contains(failing[0].String(), "the first object after a/o16,") ||
			!strings.Contains(failing[0].String(), "conversion webhook") {
			t.Errorf("failing: %v, want the watch, with the object after a/o16 and the webhook", failing)
		}
		r.source.refuse(func(metav1.ListOptions) error { return nil })
		r.source.RefuseWatches(nil)
		<-time.After(time.Minute)
		if failing := r.share.Failing(); len(failing) > 0 {
			t.Errorf("failing: %v, after the repair", failing)
		}
	})
}

// While slots have objects of the watch cache, and the kind still cannot be listed, events go on to the store.
func TestR8WatchCacheThatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLackingRig(t.Context(), t)
		r.source.refuse(inconvertible)
		r.share.Hold(r.mine)
		require.NoError(t, r.share.Load(t.Context(), r.mine, table.CauseExpelled, nil, false))
		r.share.Open(r.mine)
		<-time.After(time.Minute)
		if _, err := r.server.Create(t.Context(), r.name, nil); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		r.complete(t)
	})
}

// Objects of the watch cache are for slots without an owner, or with one that leaves.
func TestR8WatchCacheIsNoReasonToMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLackingRig(t.Context(), t)
		r.source.refuse(inconvertible)
		r.stays.Store(true)
		r.share.Hold(r.mine)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := r.share.Warm(ctx, r.mine); err == nil {
			t.Error("took a slot from an owner that works, with objects of the watch cache")
		}
		r.stays.Store(false)
		require.NoError(t, r.share.Warm(t.Context(), r.mine))
	})
}

// A former owner that does not know which version it wrote leaves slots that are not taken from the watch cache.
func TestR8WatchCacheIsBarred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLackingRig(t.Context(), t)
		r.source.refuse(inconvertible)
		r.warm(t.Context(), t, r.mine)
		versions := table.Versions{"ConfigMap": table.List}
		require.NoError(t, r.share.Load(t.Context(), r.mine, table.CauseHanded, versions, false))
		if !r.share.Lacks(r.kind, r.n) {
			t.Error("works on a slot whose former owner's writes the watch cache may lack")
		}
		r.source.refuse(func(metav1.ListOptions) error { return nil })
		<-time.After(time.Minute)
		if r.share.Lacks(r.kind, r.n) {
			t.Error("does not work on the slot, although the kind can be listed again")
		}
	})
}
