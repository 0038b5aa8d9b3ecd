package ctrlrt_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/controlplane"
)

// stock is a replica of an operator with leader election, and a shadow beside it.
type stock struct {
	stop context.CancelFunc
	done chan error
	mu   sync.Mutex
	seen map[string]int
}

func (s *stock) reconciled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

func startStock(t *testing.T, namespace, pod string) *stock {
	t.Helper()
	o := managerOptions()
	o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, "website-operator", namespace
	o.LeaderElectionReleaseOnCancel = true
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = ptr.To(time.Minute), ptr.To(50*time.Second), ptr.To(time.Second)
	o.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}}
	mgr, err := ctrl.NewManager(controlplane.For(t).Config(), o)
	if err != nil {
		t.Fatal(err)
	}
	s := &stock{done: make(chan error, 1), seen: map[string]int{}}
	err = ctrl.NewControllerManagedBy(mgr).For(&corev1.Secret{}).WithOptions(controller.Options{
		SkipNameValidation: ptr.To(true)}).Complete(reconcile.Func(
		func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.seen[req.Name]++
			return reconcile.Result{}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	shadow, err := rota.NewShadow(mgr.GetConfig(), rota.Options{Name: "website", Namespace: namespace,
		Identity: rota.Identity{Pod: pod}, Delivery: sharding.SlotLabel, LeaderElectionID: "website-operator",
		LabelNamespaces: []string{namespace}, LeaseDuration: 6 * time.Second, ScrubPeriod: time.Second},
		corev1.SchemeGroupVersion.WithKind("Secret").GroupKind())
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(shadow); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.stop = cancel
	go func() { s.done <- mgr.Start(ctx) }()
	return s
}

// end ends the replica.
func (s *stock) end(t *testing.T) {
	t.Helper()
	s.stop()
	if err := <-s.done; err != nil {
		t.Errorf("the operator ended with %v", err)
	}
	s.done <- nil
}

// Beside a stock operator, shadows say who would own what, and the operator is as it was: one leader works, its Lease is
// its own, objects are not written, and there is no rota of the name.
func TestShadowBesideAStockOperator(t *testing.T) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	const count = 60
	versions := map[string]string{}
	for i := range count {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("site-%d", i)}}
		if err := c.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		versions[secret.Name] = secret.ResourceVersion
	}
	var operators []*stock
	for _, pod := range []string{"a", "b"} {
		operators = append(operators, startStock(t, namespace, pod))
	}
	defer func() {
		for _, s := range operators {
			s.end(t)
		}
	}()
	look := func(what string, good func(*view.Rota) bool) *view.Rota {
		t.Helper()
		var last *view.Rota
		var err error
		for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
			var r *view.Rota
			if r, err = view.Read(t.Context(), controlplane.For(t).Config(), namespace, "website-shadow"); err == nil {
				if last = r; good(r) {
					return r
				}
			}
			select {
			case <-t.Context().Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
		t.Fatalf("not seen: %s; last %+v, %v", what, last, err)
		return nil
	}
	complete := func(members int) func(*view.Rota) bool {
		return func(r *view.Rota) bool {
			return r.Shadow != nil && len(r.Shadow.Kinds) == 1 && r.Shadow.Kinds[0].Objects == count &&
				len(r.Shadow.Kinds[0].Members) == members && len(r.Members) == members && r.Shadow.Kinds[0].Changes != nil &&
				len(r.Moves)+len(r.Problems)+len(r.Unknown) == 0
		}
	}
	r := look("two shadows with all objects", complete(2))
	kind := r.Shadow.Kinds[0]
	if r.Shadow.Of != "website" || kind.Kind != "Secret" || kind.Labels != count || kind.Members[0].Objects == 0 ||
		kind.Members[1].Objects == 0 || len(r.Duties) > 0 {
		t.Errorf("shadow %+v, duties %v", r.Shadow, r.Duties)
	}
	for _, m := range r.Members {
		if m.State != view.Shadowing || m.Owned != int(r.Slots)/2 || *m.Open != 0 {
			t.Errorf("member %+v, want a shadow that would own half of the slots and has none open", m)
		}
	}
	var lease coordinationv1.Lease
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "website-operator"}, &lease); err != nil {
		t.Fatal(err)
	}
	if who := ptr.Deref(lease.Spec.HolderIdentity, ""); who == "" || strings.HasPrefix(who, "rota:") {
		t.Errorf("leader election's Lease is held by %q", who)
	}
	var cm corev1.ConfigMap
	err := c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "website"}, &cm)
	if !apierrors.IsNotFound(err) {
		t.Errorf("the table of rota website: %v, want that there is none", err)
	}
	leader, other := operators[0], operators[1]
	eventually(t, 2*time.Minute, func() string {
		if n := max(leader.reconciled(), other.reconciled()); n != count {
			return fmt.Sprintf("the leader has reconciled %d of %d", n, count)
		}
		return ""
	})
	if leader.reconciled() == 0 {
		leader, other = other, leader
	}
	if leader.reconciled() != count || other.reconciled() != 0 {
		t.Errorf("the leader has reconciled %d, the other one %d, want %d and 0", leader.reconciled(), other.reconciled(), count)
	}
	leader.end(t) // the other one leads, and would have everything
	look("one shadow with all objects", complete(1))
	eventually(t, 2*time.Minute, func() string { // it may have to wait until the Lease has run out
		if n := other.reconciled(); n != count {
			return fmt.Sprintf("the next leader has reconciled %d of %d", n, count)
		}
		return ""
	})
	var secrets corev1.SecretList
	if err := c.List(t.Context(), &secrets, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets.Items {
		if s.ResourceVersion != versions[s.Name] {
			t.Errorf("%s was written: labels %v", s.Name, s.Labels)
		}
	}
}
