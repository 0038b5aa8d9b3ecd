package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/test/require"
)

const id = "web-0-x7k2p"

func newLease(t *testing.T, target Target, id string) member.Lease {
	t.Helper()
	l, o, err := target.Store.CreateLease(t.Context(), member.Lease{ID: id, Format: 1}, timeout)
	outcome(t, o, err, member.OutcomeDone)
	return l
}

func renew(t *testing.T, s store.Store, l member.Lease) member.Lease {
	t.Helper()
	renewed, o, err := s.RenewLease(t.Context(), l, timeout)
	outcome(t, o, err, member.OutcomeDone)
	if renewed.UID != l.UID || resourceversion.Compare(l.Version, renewed.Version) >= 0 {
		t.Fatalf("renewed %+v to %+v", l, renewed)
	}
	return renewed
}

// missing fails the test if the Lease is there.
func missing(t *testing.T, target Target, id string) { //nolint:unparam // reads better with it
	t.Helper()
	o, err := target.Other.DeleteLease(t.Context(), id, "", "", timeout)
	outcome(t, o, err, member.OutcomeMissing)
}

func leaseLife(t *testing.T, target Target) {
	missing(t, target, id)
	l := newLease(t, target, id)
	want := member.Lease{ID: id, UID: l.UID, Version: l.Version, Format: 1}
	if diff := cmp.Diff(want, l); diff != "" || l.UID == "" || l.Version == "" {
		t.Fatalf("created %+v (-want +got):\n%s", l, diff)
	}
	_, o, err := target.Other.CreateLease(t.Context(), member.Lease{ID: id}, timeout)
	outcome(t, o, err, member.OutcomeConflict)
	o, err = target.Other.DeleteLease(t.Context(), id, "", "", timeout)
	outcome(t, o, err, member.OutcomeConflict)

	l.Epoch, l.TableUID, l.Open, l.Format = 1763712041, "7a0c", true, 2
	renewed := renew(t, target.Store, l)
	l.Version = renewed.Version
	require.Equal(t, "renewed", l, renewed)
	o, err = target.Other.DeleteLease(t.Context(), id, l.UID, l.Version, timeout)
	outcome(t, o, err, member.OutcomeDone)
	missing(t, target, id)
}

func leaseDelete(t *testing.T, target Target) {
	first := newLease(t, target, id)
	l := renew(t, target.Store, first)
	for _, bad := range []member.Lease{
		{UID: first.UID, Version: first.Version},
		{UID: "another-uid", Version: l.Version},
	} {
		o, err := target.Other.DeleteLease(t.Context(), id, bad.UID, bad.Version, timeout)
		outcome(t, o, err, member.OutcomeConflict)
	}
	o, err := target.Other.DeleteLease(t.Context(), id, l.UID, "", timeout)
	outcome(t, o, err, member.OutcomeFailed)
	l = renew(t, target.Store, l)
	o, err = target.Other.DeleteLease(t.Context(), id, l.UID, l.Version, timeout)
	outcome(t, o, err, member.OutcomeDone)
	o, err = target.Other.DeleteLease(t.Context(), id, l.UID, l.Version, timeout)
	outcome(t, o, err, member.OutcomeMissing)
}

func leaseMissing(t *testing.T, target Target) {
	l := newLease(t, target, id)
	target.RemoveLease(t, id)
	_, o, err := target.Store.RenewLease(t.Context(), l, timeout)
	outcome(t, o, err, member.OutcomeMissing)
	missing(t, target, id)
	// Another client, that has never seen it.
	_, o, err = target.Other.RenewLease(t.Context(), l, timeout)
	outcome(t, o, err, member.OutcomeMissing)
	missing(t, target, id)
}

func leaseLost(t *testing.T, target Target) {
	l := newLease(t, target, id)
	target.RemoveLease(t, id)
	other, o, err := target.Other.CreateLease(t.Context(), member.Lease{ID: id}, timeout)
	outcome(t, o, err, member.OutcomeDone)
	_, o, err = target.Store.RenewLease(t.Context(), l, timeout)
	outcome(t, o, err, member.OutcomeConflict)

	target.HoldLease(t, id, "somebody-else")
	_, o, err = target.Other.RenewLease(t.Context(), other, timeout)
	outcome(t, o, err, member.OutcomeConflict)
}

func leaseEdited(t *testing.T, target Target) {
	l := newLease(t, target, id)
	for range 3 {
		target.TouchLease(t, id)
		l.Epoch++
		l = renew(t, target.Store, l)
	}
}

func leaseOldVersion(t *testing.T, target Target) {
	l := newLease(t, target, id)
	l.Open = true
	renewed := renew(t, target.Store, l)
	// The response was lost: the member knows the version before.
	l.Epoch, l.Version = 7, renewed.Version
	target.TouchLease(t, id)
	if got := renew(t, target.Store, l); got.Epoch != 7 || !got.Open {
		t.Fatalf("renewed to %+v", got)
	}
}

func idsOf(leases []member.Lease) []string {
	ids := []string{}
	for _, l := range leases {
		ids = append(ids, l.ID)
	}
	slices.Sort(ids)
	return ids
}

func leaseWatchAll(t *testing.T, target Target) {
	a, b := newLease(t, target, "a"), newLease(t, target, "b")
	watch := WatchLeases(t, target.Other, true)
	if first := watch.Next(t); !first.Complete || !slices.Equal(idsOf(first.Leases), []string{"a", "b"}) {
		t.Fatalf("got %+v, want all of a and b", first)
	}
	a.Epoch, b.Open = 5, true
	want := []store.Leases{
		{Leases: []member.Lease{renew(t, target.Store, a)}},
		{Leases: []member.Lease{renew(t, target.Store, b)}},
		{Leases: []member.Lease{newLease(t, target, "c")}},
	}
	target.RemoveLease(t, "a")
	want = append(want, store.Leases{Gone: []string{"a"}}, store.Leases{Leases: []member.Lease{newLease(t, target, "a")}})
	for _, want := range want {
		require.Equal(t, "emitted", want, watch.Next(t))
	}
}

func leaseWatchSome(t *testing.T, target Target) {
	a := newLease(t, target, "a")
	b := newLease(t, target, "b")
	if first := WatchLeases(t, target.Other, false).Next(t); !first.Complete || len(first.Leases) > 0 {
		t.Fatalf("got %+v, want an empty Complete", first)
	}
	watch := WatchLeases(t, target.Other, false, "a", "c")
	if first := watch.Next(t); !first.Complete || !slices.Equal(idsOf(first.Leases), []string{"a"}) {
		t.Fatalf("got %+v, want all of a and c: a", first)
	}
	renew(t, target.Store, b)
	for _, want := range []store.Leases{
		{Leases: []member.Lease{newLease(t, target, "c")}},
		{Leases: []member.Lease{renew(t, target.Store, a)}},
	} {
		require.Equal(t, "emitted", want, watch.Next(t))
	}
	target.RemoveLease(t, "a")
	if gone := watch.Next(t); !slices.Equal(gone.Gone, []string{"a"}) {
		t.Fatalf("got %+v, want a gone", gone)
	}
}

func leaseReconnect(t *testing.T, target Target) {
	l := newLease(t, target, id)
	for _, watch := range []*Watch[store.Leases]{
		WatchLeases(t, target.Store, true),
		WatchLeases(t, target.Store, false, id),
	} {
		watch.Next(t)
		target.Disconnect(t)
		target.TouchLease(t, id)
		watch.Until(t, func(seen store.Leases) bool {
			return len(seen.Leases) == 1 && resourceversion.Compare(l.Version, seen.Leases[0].Version) < 0
		})
		target.Disconnect(t)
		target.RemoveLease(t, id)
		watch.Until(t, func(seen store.Leases) bool {
			return slices.Contains(seen.Gone, id) || seen.Complete && len(seen.Leases) == 0
		})
		// A broken connection may cost an attempt, whose outcome is then unknown.
		deadline := time.Now().Add(patience)
		var o member.Outcome
		var err error
		for l, o, err = target.Store.CreateLease(t.Context(), member.Lease{ID: id}, timeout); o != member.OutcomeDone; {
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
			target.RemoveLease(t, id)
			l, o, err = target.Store.CreateLease(t.Context(), member.Lease{ID: id}, timeout)
		}
	}
}

func noTime(t *testing.T, target Target) {
	_, o, err := target.Store.CreateTable(t.Context(), Table(1), 0)
	outcome(t, o, err, member.OutcomeFailed)
	_, o, err = target.Store.CreateLease(t.Context(), member.Lease{ID: id}, -time.Second)
	outcome(t, o, err, member.OutcomeFailed)
	missing(t, target, id)
}
