package ctrlrt_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// counts is a controller that counts each object up, over all members, and reads what it has written.
type counts struct {
	t  *testing.T
	mu sync.Mutex
	// wrote is how often each object was counted up, first what each member saw first.
	wrote  map[string]int
	unsure int // writes whose outcome is not known
	first  map[string]string
}

func (c *counts) reconciler(pod string) func(*ctrlrt.Manager) reconcile.Reconciler {
	return func(mgr *ctrlrt.Manager) reconcile.Reconciler {
		api := mgr.GetClient()
		return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			rs := &appsv1.ReplicaSet{}
			if err := api.Get(ctx, req.NamespacedName, rs); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			c.saw(pod, rs)
			if req.Name == "anchor" || rs.Annotations["paused"] != "" {
				return reconcile.Result{}, nil
			}
			n, _ := strconv.Atoi(rs.Annotations[valueOf])
			rs.Annotations = map[string]string{valueOf: strconv.Itoa(n + 1)}
			err := api.Update(ctx, rs)
			switch {
			case apierrors.IsConflict(err):
				c.t.Errorf("%s writes %s at %d without having seen what was written before: %v", pod, req.Name, n, err)
				return reconcile.Result{}, err
			case err != nil:
				c.mu.Lock()
				defer c.mu.Unlock()
				c.unsure++
				return reconcile.Result{}, err
			}
			c.mu.Lock()
			c.wrote[req.Name]++
			c.mu.Unlock()
			return reconcile.Result{RequeueAfter: 20 * time.Millisecond}, c.readBack(ctx, api, pod, req.NamespacedName, n+1)
		})
	}
}

func (c *counts) saw(pod string, rs *appsv1.ReplicaSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key := pod + " " + rs.Name; c.first[key] == "" {
		c.first[key] = rs.Annotations[valueOf]
	}
}

// readBack reads what was written. A read that fails says nothing, nor does a List of a share that the object has left.
func (c *counts) readBack(ctx context.Context, api client.Client, pod string, name types.NamespacedName,
	wrote int,
) error {
	rs := &appsv1.ReplicaSet{}
	if err := api.Get(ctx, name, rs); err != nil {
		return err
	}
	if n, _ := strconv.Atoi(rs.Annotations[valueOf]); n < wrote {
		c.t.Errorf("%s reads %s at %d after it wrote %d", pod, name.Name, n, wrote)
	}
	var list appsv1.ReplicaSetList
	if err := api.List(ctx, &list, client.InNamespace(name.Namespace)); err != nil {
		return err
	}
	select {
	case <-ctx.Done(): // the list may lack what has moved
		return nil
	default:
	}
	for i := range list.Items {
		if n, _ := strconv.Atoi(list.Items[i].Annotations[valueOf]); list.Items[i].Name == name.Name && n < wrote {
			c.t.Errorf("%s lists %s at %d after it wrote %d", pod, name.Name, n, wrote)
		}
	}
	return nil
}

func newCounts(t *testing.T) *counts {
	return &counts{t: t, wrote: map[string]int{}, first: map[string]string{}}
}

// A reconcile that writes and reads sees its write while members come and go and watches lag, and the next one sees it,
// whichever member it is on: no update is refused, and none is lost.
func TestOwnWritesAreReadWhileSlotsMove(t *testing.T) {
	t.Parallel()
	readingOwnWrites(t, ctrl.Options{})
	const objects = 12
	c, namespace := adminClient(t), controlplane.Namespace(t)
	for n := range objects {
		require.NoError(t, c.Create(t.Context(), replicaSet(namespace, fmt.Sprint("o", n))))
	}
	by := newCounts(t)
	a := newReadingMember(t, "a", namespace, 0, by.reconciler("a"))
	b := newReadingMember(t, "b", namespace, 0, by.reconciler("b"))
	eventually(t, time.Minute, settled(a.replica, b.replica))
	d := newReadingMember(t, "d", namespace, 0, by.reconciler("d"))
	eventually(t, time.Minute, settled(a.replica, b.replica, d.replica))
	a.leave(t)
	eventually(t, time.Minute, settled(b.replica, d.replica))
	b.leave(t)
	d.leave(t)
	total, want := 0, 0
	for n := range objects {
		rs := &appsv1.ReplicaSet{}
		require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: fmt.Sprint("o", n)}, rs))
		count, _ := strconv.Atoi(rs.Annotations[valueOf])
		total, want = total+count, want+by.wrote[rs.Name]
	}
	t.Logf("%d updates, %d of unknown outcome", want, by.unsure)
	if total < want || total > want+by.unsure || want == 0 {
		t.Errorf("the objects were counted up to %d by %d updates and %d of unknown outcome", total, want, by.unsure)
	}
}

// A read that waits for a watch that brings nothing ends when its slot leaves, with the answer of the API server, and
// the next owner's first reconcile sees the write.
func TestReadsOfOwnWritesEndWhenSlotsLeave(t *testing.T) {
	t.Parallel()
	readingOwnWrites(t, ctrl.Options{})
	c, namespace := adminClient(t), controlplane.Namespace(t)
	rs := replicaSet(namespace, "x")
	rs.Annotations = map[string]string{"paused": "yes", valueOf: "old"}
	require.NoError(t, c.Create(t.Context(), rs))
	by := newCounts(t)
	a := newReadingMember(t, "a", namespace, 4*time.Second, by.reconciler("a"))
	eventually(t, time.Minute, settled(a.replica))
	eventually(t, time.Minute, func() string {
		by.mu.Lock()
		defer by.mu.Unlock()
		return map[bool]string{false: "x was not reconciled"}[by.first["a x"] == "old"]
	})
	defer a.watches.hold()()
	rs.Annotations[valueOf] = "new"
	require.NoError(t, a.GetClient().Patch(t.Context(), rs, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+valueOf+`":"new"}}}`))))
	read := make(chan error, 1)
	go func() {
		found := &appsv1.ReplicaSet{}
		err := a.GetClient().Get(t.Context(), client.ObjectKeyFromObject(rs), found)
		if err == nil && found.Annotations[valueOf] != "new" {
			err = fmt.Errorf("read %q", found.Annotations[valueOf])
		}
		read <- err
	}()
	select {
	case err := <-read:
		t.Fatalf("the read did not wait: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	b := newReadingMember(t, "b", namespace, 0, by.reconciler("b"))
	eventually(t, time.Minute, func() string {
		return map[bool]string{false: "b does not see both"}[b.Rota().Status().Members == 2]
	})
	a.stop()
	require.NoError(t, <-read)
	if err := <-a.done; err == nil { // it could not hand over what its watch does not tell of
		t.Error("a has handed over everything")
	}
	a.done <- nil
	eventually(t, time.Minute, settled(b.replica))
	eventually(t, time.Minute, func() string {
		by.mu.Lock()
		defer by.mu.Unlock()
		return map[bool]string{false: fmt.Sprintf("b has seen %q", by.first["b x"])}[by.first["b x"] != ""]
	})
	if got := by.first["b x"]; got != "new" {
		t.Errorf("the next owner saw %q first", got)
	}
}

// What a member's reads show beyond those of a stock manager with the same option.
func TestReadsOfOwnWritesBeyondThoseOfAStockManager(t *testing.T) {
	t.Parallel()
	readingOwnWrites(t, ctrl.Options{})
	namespace, elsewhere := controlplane.Namespace(t), controlplane.Namespace(t)
	m, whole := newWholeReader(t, namespace)
	ctx, c := t.Context(), m.GetClient()
	must := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	rs := replicaSet(namespace, "x")
	key := client.ObjectKeyFromObject(rs)
	must(c.Create(ctx, rs, client.DryRunAll))
	if err := c.Get(ctx, key, &appsv1.ReplicaSet{}); !apierrors.IsNotFound(err) {
		t.Errorf("after a dry run: %v", err)
	}
	rs = replicaSet(namespace, "x")
	rs.Finalizers = []string{"reads.rota.dev/f"}
	must(c.Create(ctx, rs))

	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 3}}
	must(c.SubResource("scale").Update(ctx, rs, client.WithSubResourceBody(scale)))
	for name, reader := range map[string]client.Reader{"the manager's client": c, "that of Whole": whole.GetClient()} {
		found := &appsv1.ReplicaSet{}
		must(reader.Get(ctx, key, found))
		if got := *found.Spec.Replicas; got != 3 {
			t.Errorf("%s: %d replicas after a write of the scale", name, got)
		}
	}

	free := &unstructured.Unstructured{}
	free.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	must(c.Get(ctx, key, free))
	free.SetAnnotations(map[string]string{valueOf: "unstructured"})
	must(c.Update(ctx, free))
	about := &metav1.PartialObjectMetadata{}
	about.SetGroupVersionKind(free.GroupVersionKind())
	for _, obj := range []client.Object{&appsv1.ReplicaSet{}, about, free} {
		must(c.Get(ctx, key, obj))
		if got := obj.GetAnnotations()[valueOf]; got != "unstructured" {
			t.Errorf("%T: %q after the write of an unstructured object", obj, got)
		}
	}

	must(c.Delete(ctx, replicaSet(namespace, "x")))
	must(c.Get(ctx, key, rs))
	rs.Finalizers = nil
	must(c.Update(ctx, rs))
	for name, reader := range map[string]client.Reader{"the manager's client": c, "that of Whole": whole.GetClient()} {
		if err := reader.Get(ctx, key, rs); !apierrors.IsNotFound(err) {
			t.Errorf("%s, after the last finalizer was removed: %v", name, err)
		}
	}

	release := m.watches.hold()
	defer release()
	must(c.Create(ctx, replicaSet(elsewhere, "y"))) // in a namespace that no cache has
	soon, cancel := context.WithTimeout(ctx, hang)
	defer cancel()
	for name, reader := range map[string]client.Reader{"the manager's client": c, "that of Whole": whole.GetClient()} {
		if err := reader.List(soon, &appsv1.ReplicaSetList{}); err != nil {
			t.Errorf("%s: a List waits for what its cache does not have: %v", name, err)
		}
	}
}

// Reads that the API server answers do not wait for caches, whichever client makes them.
func TestReadsOfOwnWritesFromTheAPIServer(t *testing.T) {
	t.Parallel()
	readingOwnWrites(t, ctrl.Options{})
	namespace := controlplane.Namespace(t)
	m, whole := newWholeReader(t, namespace, func(o *ctrl.Options) { o.Client.Cache.Unstructured = false })
	soon, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	readers := map[string]client.Reader{"the manager's client": m.GetClient(), "that of Whole": whole.GetClient()}
	anchor := &appsv1.ReplicaSet{}
	key := types.NamespacedName{Namespace: namespace, Name: m.owner.Name}
	for name, reader := range readers { // so that the caches are there
		if err := reader.Get(soon, key, anchor); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	defer m.watches.hold()()
	require.NoError(t, m.GetClient().Patch(soon, anchor, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+valueOf+`":"new"}}}`))))
	for name, reader := range readers {
		free := &unstructured.Unstructured{}
		free.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
		if err := reader.Get(soon, key, free); err != nil || free.GetAnnotations()[valueOf] != "new" {
			t.Errorf("%s: Get: %q (%v)", name, free.GetAnnotations()[valueOf], err)
		}
		all := &unstructured.UnstructuredList{}
		all.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ReplicaSetList"))
		if err := reader.List(soon, all, client.InNamespace(namespace)); err != nil {
			t.Errorf("%s: List: %v", name, err)
		}
		short, cancel := context.WithTimeout(soon, 50*time.Millisecond)
		if err := reader.Get(short, key, anchor); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: a read that the cache answers did not wait: %v", name, err)
		}
		cancel()
	}
}
