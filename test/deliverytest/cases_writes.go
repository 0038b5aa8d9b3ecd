package deliverytest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// storeHas says whether the rig's store has exactly those objects, at least at their versions.
func (r *rig) storeHas(want ...Object) error {
	have := store(r.informer)
	for _, obj := range want {
		if resourceversion.Compare(have[obj.Key], obj.Version) < 0 {
			return fmt.Errorf("the store has %v at %q, want %q", obj.Key, have[obj.Key], obj.Version)
		}
	}
	if len(have) != len(want) {
		return fmt.Errorf("the store has %v, want %v", have, want)
	}
	return nil
}

// writers are pairs of members of a kind, with a way to make objects in a slot: for the primary role and for the owned
// one.
func (s suite) writers(t *testing.T, test func(t *testing.T, old, next *rig, create func(slot.Slot) Object)) {
	t.Run("Primary", func(t *testing.T) {
		old, next := s.rig(t), s.rig(t)
		next.joins(old)
		test(t, old, next, func(n slot.Slot) Object { return old.create(old.key(n)) })
	})
	t.Run("Owned", func(t *testing.T) {
		s.keys(t, func(t *testing.T, key slot.Key) {
			old, next := s.ownedRig(t, key), s.ownedRig(t, key)
			next.joins(old)
			owners := map[slot.Slot]string{}
			test(t, old, next, func(n slot.Slot) Object {
				if owners[n] == "" {
					owners[n] = old.parentIn(n)
				}
				return old.child(owners[n])
			})
		})
	})
}

// joins has the rig look at another one's objects.
func (r *rig) joins(other *rig) {
	r.kind, r.label = other.kind, other.label
	r.informer, r.faults = r.newInformer("")
	r.heard = r.listen(r.informer)
}

// ownBeside owns slot 1, which the next member has warmed.
func (r *rig) ownBeside(next *rig) {
	r.t.Helper()
	r.run(r.informer)
	next.run(next.informer)
	r.own(only(1))
	next.must(next.warm(next.ctx, only(1)))
}

// has checks that the store has exactly those objects now, at their versions.
func (r *rig) has(want ...Object) {
	r.t.Helper()
	versions := map[types.NamespacedName]string{}
	for _, obj := range want {
		versions[obj.Key] = obj.Version
	}
	if diff := cmp.Diff(versions, store(r.informer)); diff != "" {
		r.t.Errorf("store (-want +got):\n%s", diff)
	}
}

// deleteByMember deletes an object of slot 1 as a client of the member. The API server answers with a Status.
func (r *rig) deleteByMember(key types.NamespacedName) Object {
	r.t.Helper()
	w := r.share.Write(r.kind.GroupKind, key, nil, 1)
	obj := r.delete(key)
	w.Deleted(nil)
	return obj
}

// handOver has the next member load a slot. proved says that the API server answers meanwhile.
func (r *rig) handOver(next *rig, n slot.Slot, proved bool) {
	r.t.Helper()
	r.share.Shut(only(n))
	r.settles(n, proved)
	r.must(next.share.Load(next.ctx, only(n), table.CauseHanded, r.share.Versions(only(n)), false))
}

// settles calls Settle and compares what is left, and whether the slot's next owner has to list. Settle waits for the
// API server for a second. If that did not answer in time, it is called again.
func (r *rig) settles(n slot.Slot, proved bool) {
	r.t.Helper()
	for range 100 {
		begun := time.Now()
		r.share.Settle(r.ctx, only(n))
		if slow := time.Since(begun) >= time.Second; !proved || !slow || !r.share.Unsettled(n) {
			break
		}
	}
	lists := r.ahead(n)
	if unsettled := r.share.Unsettled(n); unsettled == proved || lists == proved {
		r.t.Errorf("after Settle: unsettled: %v, the next owner lists: %v, want %v", unsettled, lists, !proved)
	}
}

// ahead says whether slot n's versions include one that does not exist yet. Its next owner then has to list.
func (r *rig) ahead(n slot.Slot) bool {
	r.t.Helper()
	_, now, err := r.kind.Client.List(r.ctx)
	r.must(err)
	return resourceversion.Compare(r.share.Versions(only(n))[r.kind.GroupKind.String()], now) > 0
}

// A member deletes objects while no watch tells of it, its own or another's: their slot's next owner does not have them
// any more when it loads. Those that no informer has seen yet are among them, and one that was created again.
func (s suite) deletionsAreCarried(t *testing.T) {
	s.writers(t, func(t *testing.T, old, next *rig, create func(slot.Slot) Object) {
		kept, seen := create(1), create(1)
		old.ownBeside(next)
		next.eventually(func() error { return next.storeHas(kept, seen) })
		resume, resumeNext := old.faults.Pause(), next.faults.Pause()
		defer resume()
		defer resumeNext()
		old.deleteByMember(seen.Key)
		unseen := create(1)
		old.share.Write(old.kind.GroupKind, unseen.Key, nil, 1).Answered(unseen.meta(unseen.Version))
		old.deleteByMember(unseen.Key)
		if !old.share.Unsettled(1) {
			t.Error("nothing is unsettled")
		}
		old.handOver(next, 1, true)
		next.has(kept)
	})
}

// The answer to a write is lost. The slot's next owner sees the write.
func (s suite) lostAnswersAreCarried(t *testing.T) {
	s.writers(t, func(_ *testing.T, old, next *rig, create func(slot.Slot) Object) {
		kept := create(1)
		old.ownBeside(next)
		resume, resumeNext := old.faults.Pause(), next.faults.Pause()
		defer resume()
		defer resumeNext()
		made := create(1)
		old.share.Write(old.kind.GroupKind, types.NamespacedName{Namespace: made.Key.Namespace}, nil, 1).Lost()
		old.handOver(next, 1, true)
		next.has(kept, made)
	})
}

// The member's own informer has shown the deletions. Their versions are handed over, without a request.
func (s suite) deletionsAreSeen(t *testing.T) {
	s.writers(t, func(t *testing.T, old, _ *rig, create func(slot.Slot) Object) {
		first, last := create(1), create(1)
		old.run(old.informer)
		old.own(only(1))
		old.eventually(func() error { return old.storeHas(first, last) })
		old.deleteByMember(first.Key)
		gone := old.deleteByMember(last.Key)
		old.eventually(func() error { return old.storeHas() })
		asked := old.faults.Counts().Asked
		old.share.Settle(old.ctx, only(1))
		if old.share.Unsettled(1) || old.faults.Counts().Asked != asked {
			t.Errorf("unsettled: %v, %d requests", old.share.Unsettled(1), old.faults.Counts().Asked-asked)
		}
		if got := old.share.Versions(only(1))[old.kind.GroupKind.String()]; gone.Version != "" && got != gone.Version {
			t.Errorf("version %s, want that of the last deletion, %s", got, gone.Version)
		}
	})
}

// The API server does not answer when a slot is drained, so the next owner lists. The slot is unsettled until a version
// is read, or until the slot is released.
func (s suite) deletionsWithoutProof(t *testing.T) {
	s.writers(t, func(t *testing.T, old, next *rig, create func(slot.Slot) Object) {
		kept, gone := create(1), create(1)
		old.ownBeside(next)
		old.eventually(func() error { return old.storeHas(kept, gone) })
		resume := next.faults.Pause()
		defer resume()
		defer old.faults.Pause()()
		old.deleteByMember(gone.Key)
		_, release := old.faults.HoldLists()
		old.handOver(next, 1, false)
		next.has(kept)
		release()
		old.settles(1, true)
		old.share.Write(old.kind.GroupKind, kept.Key, nil, 1).Lost()
		_, release = old.faults.HoldLists()
		defer release()
		old.settles(1, false)
		old.share.Release(only(1))
		if old.ahead(1) || old.share.Unsettled(1) {
			t.Errorf("after Release: the next owner lists: %v, unsettled: %v", old.ahead(1), old.share.Unsettled(1))
		}
	})
}
