package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/protocol/election"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/store/memory"
)

// Leader election's Lease is written on condition of its version, by a user who has ElectionRules and nothing else. What
// others added to it stays.
func TestElectionLease(t *testing.T) {
	controlplane.For(t)
	k := newTamper(t)
	lease := types.NamespacedName{Namespace: k.namespace, Name: "operator.example.com"}
	k.grant(t, append(permission.ElectionRules(lease.Name), rbacv1.PolicyRule{ // by the second one grant sees the first
		APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{rotaName}, Verbs: []string{"get"},
	}))
	testElection(t, k.store(t), k.store(t), lease, func(change func(*coordinationv1.Lease)) {
		leases := k.admin.CoordinationV1().Leases(lease.Namespace)
		obj, err := leases.Get(t.Context(), lease.Name, metav1.GetOptions{})
		require.NoError(t, err)
		change(obj)
		_, err = leases.Update(t.Context(), obj, metav1.UpdateOptions{})
		require.NoError(t, err)
	}, func() {
		leases := k.admin.CoordinationV1().Leases(lease.Namespace)
		obj, err := leases.Get(t.Context(), lease.Name, metav1.GetOptions{})
		if err != nil || obj.Labels["team"] != "a" || *obj.Spec.HolderIdentity != "" || *obj.Spec.LeaseDurationSeconds != 1 {
			t.Errorf("%+v (%v), want it released, and its label kept", obj, err)
		}
		require.NoError(t, leases.Delete(t.Context(), lease.Name, metav1.DeleteOptions{}))
	})
}

func TestElectionLeaseInMemory(t *testing.T) {
	m := memory.New()
	lease := types.NamespacedName{Namespace: "a", Name: "b"}
	testElection(t, m.Client(nil), m.Client(nil), lease, nil, func() { m.DeleteElection(lease) })
}

func testElection(t *testing.T, a, b store.Elections, lease types.NamespacedName,
	edit func(func(*coordinationv1.Lease)), remove func(),
) {
	t.Helper()
	ctx := t.Context()
	if r, err := a.ReadElection(ctx, lease); err != nil || r != (election.Record{}) {
		t.Fatalf("%+v, %v before there is one", r, err)
	}
	want := election.Record{Holder: "rota:a/b", Duration: 15 * time.Second, Acquired: 1_700_000_000, Renewed: 1_700_000_001,
		Transitions: 3}
	first, o, err := a.WriteElection(ctx, lease, want, time.Second)
	if err != nil || o != member.OutcomeDone || first.Version == "" {
		t.Fatalf("created %+v: %v, %v", first, o, err)
	}
	if want.Version = first.Version; first != want {
		t.Errorf("created %+v, want %+v", first, want)
	}
	if _, o, err := b.WriteElection(ctx, lease, election.Record{Holder: "b", Duration: time.Second}, time.Second); o != member.OutcomeConflict {
		t.Errorf("created twice: %v, %v", o, err)
	}
	seen, err := b.ReadElection(ctx, lease)
	if err != nil || seen != first {
		t.Fatalf("read %+v (%v), want %+v", seen, err, first)
	}
	seen.Renewed++
	second, o, err := b.WriteElection(ctx, lease, seen, time.Second)
	if err != nil || o != member.OutcomeDone || second.Version == first.Version || second.Renewed != seen.Renewed {
		t.Fatalf("renewed %+v: %v, %v", second, o, err)
	}
	if _, o, err := a.WriteElection(ctx, lease, first, time.Second); o != member.OutcomeConflict {
		t.Errorf("over an old version: %v, %v", o, err)
	}
	heard := make(chan string, 100)
	watching, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- b.WatchElection(watching, lease, func(version string, r election.Record) {
			if version == "" || r.Version != "" && r.Version != version {
				t.Errorf("heard %+v at version %q", r, version)
			}
			heard <- r.Holder + "@" + r.Version
		})
	}()
	hear := func(want string) {
		t.Helper()
		for { // a version may come twice
			got := require.Receive(t, heard, 10*time.Second, "nothing heard of %s", want)
			if got == want {
				return
			}
		}
	}
	hear("rota:a/b@" + second.Version)
	defer func() {
		end()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	}()
	if edit != nil {
		edit(func(l *coordinationv1.Lease) { l.Labels = map[string]string{"team": "a"} })
		if _, o, err := b.WriteElection(ctx, lease, second, time.Second); o != member.OutcomeConflict {
			t.Errorf("over an edit: %v, %v", o, err)
		}
	}
	last, err := a.ReadElection(ctx, lease)
	require.NoError(t, err)
	last.Holder, last.Duration = "", time.Second
	released, o, err := a.WriteElection(ctx, lease, last, time.Second)
	if err != nil || o != member.OutcomeDone {
		t.Errorf("released: %v, %v", o, err)
	}
	hear("@" + released.Version)
	remove()
	hear("@")
	for _, r := range permission.ElectionRules("x") {
		if slices.Contains(r.Verbs, "delete") {
			t.Error("a member may delete leader election's Lease")
		}
	}
}
