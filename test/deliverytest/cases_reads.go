package deliverytest

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// waits is how long a read that must wait is watched.
const waits = 100 * time.Millisecond

// reader is a member whose reads wait for its writes. object makes an object in a slot as somebody else does; owners
// are those of such objects.
type reader struct {
	*rig
	object func(slot.Slot) Object
	owners func(slot.Slot) []metav1.OwnerReference
}

// readers are one whose objects are in their own slots, and those whose objects are in their owners'.
func (s suite) readers(t *testing.T, test func(t *testing.T, r *reader)) {
	t.Run("Primary", func(t *testing.T) {
		r := s.rig(t)
		r.share.KeepWrites()
		test(t, &reader{r, func(n slot.Slot) Object { return r.create(r.key(n)) },
			func(slot.Slot) []metav1.OwnerReference { return nil }})
	})
	t.Run("Owned", func(t *testing.T) {
		s.keys(t, func(t *testing.T, key slot.Key) {
			r := s.ownedRig(t, key)
			r.share.KeepWrites()
			names := map[slot.Slot]string{1: r.parentIn(1), 2: r.parentIn(2)}
			test(t, &reader{r, func(n slot.Slot) Object { return r.child(names[n]) },
				func(n slot.Slot) []metav1.OwnerReference { return []metav1.OwnerReference{parent(names[n])} }})
		})
	})
}

// opens runs the informer, and opens slot 1.
func (r *reader) opens() {
	r.t.Helper()
	r.run(r.informer)
	r.own(only(1))
}

// answer is the API server's to a write of an object of slot n.
func (r *reader) answer(obj Object, n slot.Slot) *metav1.ObjectMeta {
	meta := obj.meta(obj.Version)
	meta.OwnerReferences, meta.Labels = r.owners(n), map[string]string{label: r.label}
	return meta
}

// wrote notes that a client of the member wrote an object of slot n.
func (r *reader) wrote(w *ledger.Write, obj Object, n slot.Slot) { w.Answered(r.answer(obj, n)) }

// updates has a client of the member update an object of slot n, in a reconcile of the slots by.
func (r *reader) updates(obj Object, n slot.Slot, by ...slot.Slot) Object {
	w := r.share.Write(r.kind.GroupKind, obj.Key, nil, by...)
	obj = r.update(obj.Key)
	r.wrote(w, obj, n)
	return obj
}

// deleted has a client of the member delete an object of slot 1. The request does not tell the object's owner.
func (r *rig) deleted(obj Object) {
	w := r.share.Write(r.kind.GroupKind, obj.Key, nil, 1)
	r.delete(obj.Key)
	w.Deleted(&metav1.ObjectMeta{UID: obj.UID})
}

// reading is a read that waits, of one object or of all.
type reading struct {
	what string
	done chan error
}

// reads begins to read objects by their names, and all of them.
func (r *rig) reads(ctx context.Context, keys ...types.NamespacedName) []reading {
	kind := r.kind.GroupKind
	all := reading{"List", make(chan error, 1)}
	go func() { all.done <- r.share.AwaitWrites(ctx, kind, "", feed.ViewShare) }()
	out := []reading{all}
	for _, key := range keys {
		one := reading{"Get of " + key.String(), make(chan error, 1)}
		go func() { one.done <- r.share.AwaitWrite(ctx, kind, key, feed.ViewShare) }()
		out = append(out, one)
	}
	return out
}

func (r *rig) waiting(all []reading) {
	r.t.Helper()
	<-time.After(waits)
	for _, one := range all {
		select {
		case err := <-one.done:
			r.t.Errorf("%s did not wait (%v)", one.what, err)
		default:
		}
	}
}

func (r *rig) answered(all []reading) {
	r.t.Helper()
	for _, one := range all {
		if err := <-one.done; err != nil {
			r.t.Errorf("%s: %v", one.what, err)
		}
	}
}

// waitUntil has reads wait until something is done.
func (r *reader) waitUntil(do func(), keys ...types.NamespacedName) {
	r.t.Helper()
	all := r.reads(r.ctx, keys...)
	r.waiting(all)
	do()
	r.answered(all)
}

// Reads wait for what this member wrote in its open slots, and for nothing else.
func (s suite) readsShowWrites(t *testing.T) {
	s.readers(t, func(t *testing.T, r *reader) {
		kind := r.kind.GroupKind
		kept, doomed, other, foreign := r.object(1), r.object(1), r.object(1), r.object(2)
		r.opens()
		resume := r.faults.Pause()
		r.updates(foreign, 2)
		r.answered(r.reads(r.ctx, foreign.Key)) // another member's

		kept = r.updates(kept, 1, 1)
		r.deleted(doomed)
		made := r.object(1)
		r.wrote(r.share.Write(kind, made.Key, nil, 1), made, 1)
		all := r.reads(r.ctx, kept.Key, doomed.Key, made.Key)
		r.waiting(all)
		r.must(r.share.AwaitWrite(r.ctx, kind, other.Key, feed.ViewShare)) // nobody wrote it
		r.must(r.share.AwaitWrite(r.ctx, kind, kept.Key, feed.ViewWhole))  // there is no such cache
		ended, cancel := context.WithTimeout(r.ctx, time.Millisecond)
		defer cancel()
		for _, one := range r.reads(ended, kept.Key, doomed.Key, made.Key) {
			if err := <-one.done; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s with a context that ends: %v", one.what, err)
			}
		}
		resume()
		r.answered(all)
		r.must(r.storeHas(kept, other, made))
		r.answered(r.reads(r.ctx, kept.Key, doomed.Key, made.Key))
	})
}

// Nobody waits for what leaves, nor for what was written when the slot was another's.
func (s suite) readsEndWithTheSlot(t *testing.T) {
	s.readers(t, func(_ *testing.T, r *reader) {
		kept, doomed := r.object(1), r.object(1)
		r.opens()
		resume := r.faults.Pause()
		r.updates(kept, 1, 1)
		r.deleted(doomed)
		r.waitUntil(func() { r.share.Shut(only(1)) }, kept.Key, doomed.Key)
		r.share.Release(only(1))
		kept = r.updates(kept, 1)
		resume()
		r.own(only(1)) // a list that began after the write
		r.answered(r.reads(r.ctx, kept.Key, doomed.Key))
		r.must(r.storeHas(kept))
	})
}

// Whoever deletes what the cache has not shown yet does not find it afterwards.
func (s suite) readsShowUnseenDeletions(t *testing.T) {
	s.readers(t, func(_ *testing.T, r *reader) {
		kind := r.kind.GroupKind
		kept := r.object(1)
		r.opens()
		resume := r.faults.Pause()
		mine := r.object(1)
		r.wrote(r.share.Write(kind, mine.Key, nil, 1), mine, 1)
		r.deleted(mine)
		others := r.object(1)
		r.deleted(others)
		r.waitUntil(resume, mine.Key, others.Key)
		r.must(r.storeHas(kept))
	})
}

// A slot that is about to open counts as open: a member that is told that it owns an object reads what it wrote to it.
func (s suite) readsBeginBeforeTheSlotOpens(t *testing.T) {
	s.readers(t, func(_ *testing.T, r *reader) {
		kept := r.object(1)
		r.run(r.informer)
		r.must(r.warm(r.ctx, only(1)))
		r.must(r.share.Load(r.ctx, only(1), table.CauseAssigned, nil, false))
		resume := r.faults.Pause()
		kept = r.updates(kept, 1, 1)
		r.answered(r.reads(r.ctx, kept.Key))
		r.share.OpenToReads(only(1))
		r.waitUntil(resume, kept.Key)
		r.must(r.storeHas(kept))
	})
}

// Nobody waits for a kind that is not served, although its watch is tried again and again.
func (s suite) readsEndWithTheKind(t *testing.T) {
	s.readers(t, func(_ *testing.T, r *reader) {
		kept, doomed := r.object(1), r.object(1)
		r.opens()
		r.faults.Refuse(errNotServed)
		r.updates(kept, 1, 1)
		r.answered(r.reads(r.ctx, kept.Key))
		r.deleted(doomed)
		r.answered(r.reads(r.ctx, doomed.Key))
		unseen := r.object(1)
		r.deleted(unseen)
		r.answered(r.reads(r.ctx, unseen.Key))
	})
}

// The error of a list that a read needs is not the read's.
func (s suite) readsOutlastLists(t *testing.T) {
	s.readers(t, func(t *testing.T, r *reader) {
		kept := r.object(1)
		r.opens()
		resume := r.faults.Pause()
		unseen := r.object(1)
		r.deleted(unseen)
		r.faults.Refuse(errForbidden)
		soon, cancel := context.WithTimeout(r.ctx, waits)
		defer cancel()
		for _, one := range r.reads(soon, unseen.Key) {
			if err := <-one.done; !errors.Is(err, context.DeadlineExceeded) || apierrors.IsForbidden(err) {
				t.Errorf("%s while lists are refused: %v", one.what, err)
			}
		}
		r.waitUntil(func() {
			r.faults.Refuse(nil)
			resume()
		}, unseen.Key)
		r.must(r.storeHas(kept))
	})
}

// An object without finalizers in its metadata may stay for long after it was deleted, as a Namespace does. Reads wait
// for the version that the deletion gave it.
func (s suite) readsOfWhatStays(t *testing.T) {
	s.readers(t, func(t *testing.T, r *reader) {
		kind := r.kind.GroupKind
		stays := r.object(1)
		r.opens()
		for what, answered := range map[string]func(*ledger.Write, metav1.Object){
			"its deletion": (*ledger.Write).Deleted, "an update after it": (*ledger.Write).Answered,
		} {
			resume := r.faults.Pause()
			w := r.share.Write(kind, stays.Key, nil, 1)
			stays = r.update(stays.Key)
			leaving := r.answer(stays, 1)
			leaving.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			answered(w, leaving)
			all := r.reads(r.ctx, stays.Key)
			r.waiting(all)
			resume()
			soon, cancel := context.WithTimeout(r.ctx, time.Minute)
			for _, one := range all {
				select {
				case err := <-one.done:
					r.must(err)
				case <-soon.Done():
					t.Fatalf("%s waits until the object is gone, after %s", one.what, what)
				}
			}
			cancel()
			r.must(r.storeHas(stays))
		}
	})
}
