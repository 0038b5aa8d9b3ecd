package ctrlrt_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/test/controlplane"
)

func adminClient(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(controlplane.For(t).Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// R7, R13: a member whose Lease somebody deletes is out; it joins again as a new incarnation, and all the while no
// object is reconciled twice at once.
func TestExpelledMemberJoinsAgain(t *testing.T) {
	controlplane.Essential(t)
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	j := newJournal()
	var keys []types.NamespacedName
	for i := range 40 {
		cm := configMap(namespace, fmt.Sprintf("object-%d", i), "1")
		if err := c.Create(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, client.ObjectKeyFromObject(cm))
	}
	options := replicaOptions{busy: 40 * time.Millisecond}
	a := startReplica(t, namespace, "a", j, options)
	b := startReplica(t, namespace, "b", j, options)
	eventually(t, 30*time.Second, settled(a, b))
	stop := churn(t, c, keys)
	old, before := a.Rota().ID(), j.total()
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = namespace, names.Lease("test", old)
	if err := c.Delete(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, func() string {
		if a.Rota().ID() == old {
			return "the member has not noticed that its Lease is gone"
		}
		return settled(a, b)()
	})
	if changes, n := stop(), j.total()-before; n < 60 {
		t.Errorf("%d reconciles and %d changes while slots moved: this says nothing", n, changes)
	}
	eventually(t, 10*time.Second, func() string {
		for _, key := range keys {
			cm := configMap(key.Namespace, key.Name, "")
			if err := c.Get(t.Context(), key, cm); err != nil {
				return err.Error()
			}
			if v := j.of(key); v.version != cm.ResourceVersion {
				return fmt.Sprintf("%s was last reconciled at version %q, want %s", key, v.version, cm.ResourceVersion)
			}
		}
		return ""
	})
	if err := j.problem(); err != nil {
		t.Error(err)
	}
}

// R6, R9: one stuck reconcile holds back its own slot only, even from a member that leaves.
func TestStuckReconcileHoldsBackItsSlotOnly(t *testing.T) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	j := newJournal()
	begun, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hang := func(ctx context.Context, _ client.Client, req reconcile.Request) (reconcile.Result, error) {
		if req.Name == "stuck" {
			once.Do(func() {
				close(begun)
				select {
				case <-release:
				case <-ctx.Done():
					if !errors.Is(context.Cause(ctx), gate.ErrHandover) {
						t.Errorf("the stuck reconcile was cancelled: %v", context.Cause(ctx))
					}
					<-release // it does not heed that its member leaves
				}
			})
		}
		return reconcile.Result{}, nil
	}
	a := startReplica(t, namespace, "a", j, replicaOptions{reconcile: hang})
	eventually(t, 30*time.Second, settled(a))
	if err := c.Create(t.Context(), configMap(namespace, "stuck", "1")); err != nil {
		t.Fatal(err)
	}
	<-begun
	held, _ := a.Rota().Adapt(adapter.Grant()).Share.Locate(configMapKind, types.NamespacedName{Namespace: namespace, Name: "stuck"})
	b := startReplica(t, namespace, "b", j, replicaOptions{})
	eventually(t, 30*time.Second, func() string {
		if s := b.Rota().Status(); s.Members != 2 {
			return "b has not joined"
		}
		return ""
	})
	a.stop()
	eventually(t, 20*time.Second, func() string {
		s := b.Rota().Status()
		if s.Open.Len() != 255 || s.Open.Has(held) {
			return fmt.Sprintf("%d slots are open in b, want all but slot %d", s.Open.Len(), held)
		}
		return ""
	})
	eventually(t, 20*time.Second, func() string {
		var events corev1.EventList
		if err := c.List(t.Context(), &events, client.InNamespace(namespace)); err != nil {
			return err.Error()
		}
		want := fmt.Sprintf("slot %d cannot move on: controller configmap has been reconciling %s/stuck for ", held,
			namespace)
		for _, e := range events.Items {
			if e.Reason == "SlotHeldBack" && strings.HasPrefix(e.Message, want) && e.ReportingInstance == "a" {
				return ""
			}
		}
		return "no event says " + want
	})
	close(release)
	eventually(t, 20*time.Second, settled(b))
	a.leave(t)
	if j.err != nil {
		t.Error(j.err)
	}
}

// Errors back off as long as controller-runtime's rate limiter says, 5 ms and twice as much each time; RequeueAfter
// comes back when it is due; neither goes on when nothing asks for it any more.
func TestQueuesKeepTheirPromises(t *testing.T) {
	t.Parallel()
	const tries, after, backOff = 9, 300 * time.Millisecond, 5 * time.Millisecond
	c, namespace := adminClient(t), controlplane.Namespace(t)
	j := newJournal()
	var mu sync.Mutex
	begun := map[string][]time.Time{}
	reconcileFunc := func(_ context.Context, _ client.Client, req reconcile.Request) (reconcile.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		begun[req.Name] = append(begun[req.Name], time.Now())
		switch n := len(begun[req.Name]); {
		case req.Name == "fails" && n < tries:
			return reconcile.Result{}, errors.New("on purpose")
		case req.Name == "repeats" && n < tries, req.Name == "later" && n < 3:
			return reconcile.Result{RequeueAfter: after}, nil
		}
		return reconcile.Result{}, nil
	}
	done := func(want map[string]int) func() string {
		return func() string {
			mu.Lock()
			defer mu.Unlock()
			for name, n := range want {
				if got := len(begun[name]); got < n {
					return fmt.Sprintf("%d tries of what %s, want %d", got, name, n)
				}
			}
			return ""
		}
	}
	a := startReplica(t, namespace, "a", j, replicaOptions{reconcile: reconcileFunc})
	eventually(t, 30*time.Second, settled(a))
	create := func(name string) {
		t.Helper()
		if err := c.Create(t.Context(), configMap(namespace, name, "1")); err != nil {
			t.Fatal(err)
		}
	}
	create("fails")
	create("repeats")
	eventually(t, 30*time.Second, done(map[string]int{"fails": tries, "repeats": tries}))
	create("later") // it takes a while, in which the others must not come back
	eventually(t, 20*time.Second, done(map[string]int{"later": 3}))
	mu.Lock()
	defer mu.Unlock()
	for name, least := range map[string]func(n int) time.Duration{
		"fails":   func(n int) time.Duration { return backOff << (n - 1) },
		"repeats": func(int) time.Duration { return after },
	} {
		if n := len(begun[name]); n != tries {
			t.Errorf("%d tries of what %s, want %d", n, name, tries)
		}
		for n := 1; n < len(begun[name]); n++ {
			if waited := begun[name][n].Sub(begun[name][n-1]); waited < least(n) {
				t.Errorf("try %d of what %s came after %v, want %v at least", n+1, name, waited, least(n))
			}
		}
	}
}

func TestLosingASlotEndsTheContext(t *testing.T) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	cause := make(chan error, 1)
	a := startReplica(t, namespace, "a", newJournal(), replicaOptions{
		reconcile: func(ctx context.Context, _ client.Client, req reconcile.Request) (reconcile.Result, error) {
			if req.Name == "waits" {
				<-ctx.Done()
				select {
				case cause <- context.Cause(ctx):
				default:
				}
				return reconcile.Result{}, ctx.Err()
			}
			return reconcile.Result{}, nil
		},
	})
	eventually(t, 30*time.Second, settled(a))
	if err := c.Create(t.Context(), configMap(namespace, "waits", "1")); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, func() string {
		if a.Rota().Status().InFlight == 0 {
			return "the reconcile has not begun"
		}
		return ""
	})
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = namespace, names.Lease("test", a.Rota().ID())
	if err := c.Delete(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-cause:
		if !errors.Is(err, gate.ErrLost) && !errors.Is(err, gate.ErrExpired) {
			t.Errorf("the context ended because of %v, want gate.ErrLost or gate.ErrExpired", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the context did not end")
	}
}

// Unsharded controllers of the same manager keep stock leader election: one member runs them.
func TestUnshardedControllersKeepTheirLeader(t *testing.T) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	var mu sync.Mutex
	by := map[string]int{}
	stock := func(pod string) func(*ctrlrt.Manager) {
		return func(mgr *ctrlrt.Manager) {
			err := ctrl.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Complete(reconcile.Func(
				func(context.Context, reconcile.Request) (reconcile.Result, error) {
					mu.Lock()
					defer mu.Unlock()
					by[pod]++
					return reconcile.Result{}, nil
				}))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 8 {
		secret := &corev1.Secret{}
		secret.Namespace, secret.Name = namespace, fmt.Sprintf("secret-%d", i)
		if err := c.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	j := newJournal()
	a := startReplica(t, namespace, "a", j, replicaOptions{setup: stock("a"), leaderElection: true})
	b := startReplica(t, namespace, "b", j, replicaOptions{setup: stock("b"), leaderElection: true})
	eventually(t, 30*time.Second, settled(a, b))
	eventually(t, 30*time.Second, func() string {
		mu.Lock()
		defer mu.Unlock()
		if by["a"]+by["b"] < 8 {
			return fmt.Sprintf("reconciles of Secrets by member: %v, want 8", by)
		}
		return ""
	})
	mu.Lock()
	defer mu.Unlock()
	if by["a"] > 0 && by["b"] > 0 {
		t.Errorf("reconciles of Secrets by member: %v, want one leader", by)
	}
}
