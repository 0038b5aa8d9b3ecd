package ctrlrt_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/test/controlplane"
)

// probes are goroutines that a reconciler starts, one for each object, as operators do that watch a remote cluster or
// check the health of something.
type probes struct {
	t  *testing.T
	mu sync.Mutex
	// at is the member at which an object's probe runs, and written how many have been written.
	at      map[types.NamespacedName]string
	written map[types.NamespacedName]int
}

// reconciler is that of a member. It starts the probe of an object that has none.
func (p *probes) reconciler(member string) func(context.Context, client.Client, reconcile.Request) (reconcile.Result, error) {
	mine := sync.Map{} // as such reconcilers have it
	return func(ctx context.Context, c client.Client, r reconcile.Request) (reconcile.Result, error) {
		if r.Name == "test" { // it is the rota's table
			return reconcile.Result{}, nil
		}
		if _, runs := mine.LoadOrStore(r.NamespacedName, true); runs {
			return reconcile.Result{}, nil
		}
		var there corev1.ConfigMap
		if err := c.Get(ctx, r.NamespacedName, &there); err != nil {
			mine.Delete(r.NamespacedName)
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		return reconcile.Result{}, rota.Go(ctx, func(ctx context.Context) {
			p.enter(r.NamespacedName, member)
			p.probe(ctx, c, r.NamespacedName, member)
			p.leave(r.NamespacedName)
			mine.Delete(r.NamespacedName)
		})
	}
}

// probe writes what it finds until its context ends.
func (p *probes) probe(ctx context.Context, c client.Client, key types.NamespacedName, member string) {
	found := &corev1.Secret{}
	found.Namespace, found.Name = key.Namespace, key.Name
	for n := 0; ctx.Err() == nil; n++ {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"stringData":{"by":"%s-%d"}}`, member, n))
		if err := c.Patch(ctx, found, patch); err == nil {
			p.mu.Lock()
			p.written[key]++
			p.mu.Unlock()
		} else if ctx.Err() == nil && !refused(err) {
			p.t.Errorf("the probe of %s at %s cannot write: %v", key, member, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// refused says that a write came too late, which is known a moment before the context ends.
func refused(err error) bool {
	return errors.Is(err, gate.ErrLost) || errors.Is(err, gate.ErrExpired) || errors.Is(err, rota.ErrDeadline)
}

func (p *probes) enter(key types.NamespacedName, member string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if other, runs := p.at[key]; runs {
		p.t.Errorf("%s has probes at %s and %s", key, other, member)
	}
	p.at[key] = member
}

func (p *probes) leave(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.at, key)
}

// all says whether each of n objects has a probe, at as many members, which has written since the call.
func (p *probes) all(n, members int) func() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := map[types.NamespacedName]int{}
	for key, written := range p.written {
		before[key] = written
	}
	return func() string {
		p.mu.Lock()
		defer p.mu.Unlock()
		at := map[string]int{}
		writing := 0
		for key, member := range p.at {
			at[member]++
			if p.written[key] > before[key] {
				writing++
			}
		}
		if writing != n || len(at) != members {
			return fmt.Sprintf("%d of %d objects have a probe that has written; probes by member: %v", writing, n, at)
		}
		return ""
	}
}

// R6: what reconciles leave running goes where their objects go.
func TestProbesMoveWithTheirObjects(t *testing.T) {
	t.Parallel()
	const objects = 20
	c, namespace := adminClient(t), controlplane.Namespace(t)
	for i := range objects {
		name := fmt.Sprintf("object-%d", i)
		secret := &corev1.Secret{}
		secret.Namespace, secret.Name = namespace, name
		for _, obj := range []client.Object{configMap(namespace, name, "1"), secret} {
			if err := c.Create(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := &probes{t: t, at: map[types.NamespacedName]string{}, written: map[types.NamespacedName]int{}}
	start := func(name string) *replica {
		return startReplica(t, namespace, name, newJournal(), replicaOptions{reconcile: p.reconciler(name)})
	}
	a := start("a")
	eventually(t, 30*time.Second, settled(a))
	eventually(t, 10*time.Second, p.all(objects, 1))
	b := start("b")
	eventually(t, 30*time.Second, settled(a, b))
	eventually(t, 10*time.Second, p.all(objects, 2))

	expelled := &coordinationv1.Lease{}
	expelled.Namespace, expelled.Name = namespace, names.Lease("test", b.Rota().ID())
	if err := c.Delete(t.Context(), expelled); err != nil {
		t.Fatal(err)
	}
	old := b.Rota().ID()
	eventually(t, 60*time.Second, func() string {
		if b.Rota().ID() == old {
			return "b has not joined again"
		}
		return settled(a, b)()
	})
	eventually(t, 10*time.Second, p.all(objects, 2))

	again := configMap(namespace, "object-0", "1")
	if err := c.Delete(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, p.all(objects-1, 2))
	again.ResourceVersion = ""
	if err := c.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, p.all(objects, 2))

	a.leave(t)
	eventually(t, 30*time.Second, settled(b))
	eventually(t, 10*time.Second, p.all(objects, 1))
}
