package deliverytest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// lacks compares the slots on which no member may work.
func (r *rig) lacks(want ...slot.Slot) {
	r.t.Helper()
	var got []slot.Slot
	for n := range slot.Slot(slots) {
		if r.share.Lacks(r.kind.GroupKind, n) {
			got = append(got, n)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.t.Errorf("slots that lack a kind: %v, want %v", got, want)
	}
}

// Slots open without a kind whose lists are refused, and say so. Once it can be listed, everything in them is told.
func (s suite) cannotBeListed(t *testing.T) {
	for name, cause := range map[string]table.Cause{"handed": table.CauseHanded, "expelled": table.CauseExpelled} {
		t.Run(name, func(t *testing.T) {
			r := s.rig(t)
			r.fill(2, 1, 2, 3)
			r.run(r.informer)
			r.own(only(1))
			r.faults.Refuse(errForbidden)
			soon, cancel := context.WithTimeout(r.ctx, time.Second)
			defer cancel()
			if err := r.warm(soon, only(2, 3)); err == nil {
				t.Error("took slots without a kind from an owner that works")
			}
			r.ownerLeaves.Store(true)
			r.must(r.warm(r.ctx, only(2, 3)))
			r.must(r.share.Load(r.ctx, only(2, 3), cause, nil, false))
			r.lacks(2, 3)
			if got := r.openNow(only(2, 3)); len(got) > 0 {
				t.Errorf("Open returns %v of a kind that cannot be listed", got)
			}
			told := false
			for _, f := range r.share.Failing() {
				told = told || f.Request == feed.RequestList && f.Without.Len() == 2
			}
			if !told {
				t.Errorf("it is not told that two slots go without lists: %v", r.share.Failing())
			}
			gone := r.create(r.key(2))
			r.share.Release(only(3))
			r.lacks(2)
			r.delete(gone.Key)
			r.faults.Refuse(nil)
			r.eventually(func() error {
				if r.share.Lacks(r.kind.GroupKind, 2) {
					return errors.New("slot 2 lacks the kind still")
				}
				return nil
			})
			r.lacks()
			r.wantLevel(only(1, 2))
			r.sync()
			r.failing()
			r.wantStore(only(1, 2))
			r.wantLevel(only(1, 2))
			r.own(only(3))
			r.lacks()
			r.wantLevel(only(1, 2, 3))
			r.noDeletions()
		})
	}
}

// The member waits for a kind that is merely slow. It also waits for a kind that it has never listed: the slots'
// present owner may be able to list it.
func (s suite) merelySlow(t *testing.T) {
	r := s.rig(t)
	r.fill(2, 1)
	r.faults.Refuse(apierrors.NewInternalError(errForbidden))
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan struct{})
	go func() { defer close(done); r.informer.RunWithContext(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	_, started, _ := r.share.KindOf(r.informer)
	<-started
	waits := func(what string) {
		t.Helper()
		soon, cancel := context.WithTimeout(r.ctx, time.Second)
		defer cancel()
		if err := r.warm(soon, only(1)); err == nil {
			t.Errorf("did not wait for a kind that %s", what)
		}
	}
	r.ownerLeaves.Store(true)
	waits("was never listed")
	r.faults.Refuse(nil)
	r.must(r.warm(r.ctx, only(1)))
	_, release := r.faults.HoldLists()
	r.share.Hold(only(2))
	soon, end := context.WithTimeout(r.ctx, time.Second)
	defer end()
	if err := r.share.Load(soon, only(2), table.CauseExpelled, nil, false); err == nil {
		t.Error("did not wait for a kind that is merely slow")
	}
	r.lacks()
	release()
	r.own(only(1, 2))
	r.wantLevel(only(1, 2))
}

// A failed list says nothing about slots that are wanted later, or again. These slots wait for the next list.
func (s suite) failureIsOver(t *testing.T) {
	r := s.rig(t)
	r.fill(2, 1, 2, 3)
	r.run(r.informer)
	r.own(only(1))
	r.ownerLeaves.Store(true)
	r.faults.Refuse(errForbidden)
	r.must(r.warm(r.ctx, only(2)))
	r.lacks(2)
	r.share.Release(only(2))
	r.faults.Refuse(nil)
	r.must(r.warm(r.ctx, only(2, 3))) // while it is waited until the list is tried again
	r.lacks()
	r.must(r.share.Load(r.ctx, only(2, 3), table.CauseHanded, nil, false))
	r.lacks()
	r.open(only(2, 3))
	r.wantStore(only(1, 2, 3))
	r.wantLevel(only(1, 2, 3))
}
