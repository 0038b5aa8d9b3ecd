package ctrlrt_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/cable"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// watches are those of a manager, which come late, and not at all while they are held.
type watches struct {
	mu   sync.Mutex
	held chan struct{} // nil: they are not
}

func (w *watches) config(t *testing.T) *rest.Config {
	t.Helper()
	cfg := rest.CopyConfig(controlplane.For(t).Config())
	cfg.QPS = -1
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return cable.Watches(watchesLag(next, readLag), func(_ *http.Request, body io.ReadCloser) io.ReadCloser {
			return &heldBody{ReadCloser: body, of: w, done: make(chan struct{})}
		})
	})
	return cfg
}

// hold holds the watches until release is called.
func (w *watches) hold() (release func()) {
	held := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = held
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.held = nil
		close(held)
	})
}

func (w *watches) holding() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held
}

// heldBody is a watch that is held.
type heldBody struct {
	io.ReadCloser
	of   *watches
	done chan struct{}
	once sync.Once
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for held := b.of.holding(); held != nil; held = b.of.holding() {
		select {
		case <-held:
		case <-b.done:
			return 0, io.ErrClosedPipe
		}
	}
	return n, err
}

func (b *heldBody) Close() error {
	b.once.Do(func() { close(b.done) })
	return b.ReadCloser.Close()
}

// anchorOf makes the ReplicaSet that owns children.
func anchorOf(t *testing.T, namespace string) metav1.OwnerReference {
	t.Helper()
	c := adminClient(t)
	anchor := replicaSet(namespace, "anchor")
	if err := c.Create(t.Context(), anchor); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(anchor), anchor))
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: anchor.Name, UID: anchor.UID,
		Controller: ptr.To(true)}
}

// readingMember is a member whose reads wait for its writes, with a reconcile that makes calls.
type readingMember struct {
	*replica
	namespace string
	owner     metav1.OwnerReference
	calls     chan func(context.Context)
	watches   *watches
}

// newWholeReader starts one that reconciles nothing and has joined, and returns its Whole.
func newWholeReader(t *testing.T, namespace string, options ...func(*ctrl.Options)) (*readingMember, manager.Manager) {
	t.Helper()
	var whole manager.Manager
	m := newReadingMember(t, "m", namespace, 0, func(mgr *ctrlrt.Manager) reconcile.Reconciler {
		err := mgr.KeepWhole(&appsv1.ReplicaSet{})
		if err == nil {
			whole, err = mgr.Whole()
		}
		require.NoError(t, err)
		return nothing
	}, options...)
	eventually(t, time.Minute, settled(m.replica))
	return m, whole
}

// newReadingMember starts one. Its controller of ReplicaSets is that of build; nil: one that makes the calls of inside,
// beside a controller of Namespaces. leave is its LeaveTimeout; 0: the default.
func newReadingMember(t *testing.T, pod, namespace string, leave time.Duration,
	build func(*ctrlrt.Manager) reconcile.Reconciler, options ...func(*ctrl.Options),
) *readingMember {
	t.Helper()
	m := &readingMember{namespace: namespace, calls: make(chan func(context.Context)), owner: anchorOf(t, namespace),
		watches: &watches{}}
	ready, done := &atomic.Bool{}, make(chan struct{})
	ready.Store(true)
	mgr := newMember(t, m.watches.config(t), namespace, pod, rota.Options{LeaveTimeout: leave}, func(o *ctrl.Options) {
		*o = readingOwnWrites(t, *o)
		for _, set := range options {
			set(o)
		}
	})
	reconciler := reconcile.Reconciler(&session{calls: m.calls, ready: ready, done: done})
	if build != nil {
		reconciler = build(mgr)
	} else {
		err := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Namespace{}).Complete(nothing)
		require.NoError(t, err)
	}
	err := ctrlrt.NewControllerManagedBy(mgr).For(&appsv1.ReplicaSet{}).Owns(&corev1.Secret{}).Complete(reconciler)
	require.NoError(t, err)
	m.replica = begin(t, mgr)
	t.Cleanup(func() { close(done) }) // before it leaves
	return m
}

// inside makes calls in a reconcile of the anchor.
func (m *readingMember) inside(t *testing.T, do func(context.Context)) {
	t.Helper()
	done := make(chan struct{})
	m.calls <- func(ctx context.Context) {
		defer close(done)
		do(ctx)
	}
	<-done
}
