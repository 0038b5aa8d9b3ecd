package ctrlrt_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/gate"
	"github.com/rota-dev/rota/internal/controlplane"
	"github.com/rota-dev/rota/store"
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
	c, namespace := adminClient(t), controlplane.Namespace(t)
	j := newJournal()
	a := startReplica(t, namespace, "a", j, replicaOptions{})
	b := startReplica(t, namespace, "b", j, replicaOptions{})
	for i := range 20 {
		if err := c.Create(t.Context(), configMap(namespace, fmt.Sprintf("object-%d", i), "1")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 30*time.Second, settled(a, b))
	old := a.Rota().ID()
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = namespace, store.LeaseName("test", old)
	if err := c.Delete(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, func() string {
		if a.Rota().ID() == old {
			return "the member has not noticed that its Lease is gone"
		}
		return settled(a, b)()
	})
	if j.err != nil {
		t.Error(j.err)
	}
}

// R6, R9: one stuck reconcile holds back its own slot only, even from a member that leaves.
func TestStuckReconcileHoldsBackItsSlotOnly(t *testing.T) {
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
	held, _ := a.Rota().SlotOf(configMapKind, types.NamespacedName{Namespace: namespace, Name: "stuck"})
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
	close(release)
	eventually(t, 20*time.Second, settled(b))
	a.leave(t)
	if j.err != nil {
		t.Error(j.err)
	}
}

// Errors back off, RequeueAfter comes back, and a lost slot ends the context (R12).
func TestQueuesKeepTheirPromises(t *testing.T) {
	c, namespace := adminClient(t), controlplane.Namespace(t)
	j := newJournal()
	var failures, repeats atomic.Int32
	reconcileFunc := func(_ context.Context, _ client.Client, req reconcile.Request) (reconcile.Result, error) {
		switch req.Name {
		case "fails":
			if failures.Add(1) < 4 {
				return reconcile.Result{}, errors.New("on purpose")
			}
		case "repeats":
			if repeats.Add(1) < 4 {
				return reconcile.Result{RequeueAfter: 50 * time.Millisecond}, nil
			}
		}
		return reconcile.Result{}, nil
	}
	a := startReplica(t, namespace, "a", j, replicaOptions{reconcile: reconcileFunc})
	eventually(t, 30*time.Second, settled(a))
	for _, name := range []string{"fails", "repeats"} {
		if err := c.Create(t.Context(), configMap(namespace, name, "1")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 20*time.Second, func() string {
		if f, r := failures.Load(), repeats.Load(); f < 4 || r < 4 {
			return fmt.Sprintf("%d tries of what fails, %d of what repeats, want 4 each", f, r)
		}
		return ""
	})
}

func TestLosingASlotEndsTheContext(t *testing.T) {
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
	lease.Namespace, lease.Name = namespace, store.LeaseName("test", a.Rota().ID())
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
