package ctrlrt_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

const (
	// worldMembers is how many members the rota has.
	worldMembers = 3
	// worldObjects is how many names of each kind changes choose from.
	worldObjects = 10
	// anchors are objects of each primary kind that never change. Reconciles of them make the calls.
	anchors = 30
	// colorIndex is an index of ConfigMaps.
	colorIndex = "color"
)

// colored selects the objects that have a color.
var colored = func() labels.Selector {
	has, _ := labels.NewRequirement("color", selection.Exists, nil)
	return labels.NewSelector().Add(*has)
}()

// silent drops what managers log: thousands of senseless calls are nothing to read.
var silent = funcr.New(func(_, _ string) {}, funcr.Options{})

// readWorld is a stock manager and a rota of three, with the same objects.
type readWorld struct {
	// namespace and colored are those of the caches. Of the latter they hold the objects that have a color. beyond has
	// objects, too, and is in no cache.
	namespace, colored, beyond string

	direct   client.Client
	stock    manager.Manager
	members  []*readMember
	replicas []*replica
	ready    atomic.Bool // reconciles make calls
}

// readMember is a member with a reconcile of each controller that makes calls.
type readMember struct {
	*ctrlrt.Manager
	pod      string
	sessions map[string]chan func(context.Context)
}

// session is a reconciler that makes calls in one long reconcile of an anchor, many at a time.
type session struct {
	calls chan func(context.Context)
	ready *atomic.Bool
	done  <-chan struct{}
	one   sync.Mutex
}

func (s *session) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	later := reconcile.Result{RequeueAfter: time.Second}
	switch {
	case !strings.Contains(req.Name, "anchor"):
		return reconcile.Result{}, nil
	case !s.ready.Load() || !s.one.TryLock():
		return later, nil
	}
	defer s.one.Unlock()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case call := <-s.calls:
			if call == nil {
				return later, nil
			}
			running.Go(func() { call(ctx) })
		case <-ctx.Done():
			return later, nil
		case <-s.done:
			return reconcile.Result{}, nil
		}
	}
}

func (w *readWorld) name(n int) string { return fmt.Sprintf("%s-%d", w.namespace, n) }

// has reports whether an object belongs to the world. Other tests have others.
func (w *readWorld) has(obj client.Object) bool {
	switch obj.GetNamespace() {
	case w.namespace, w.colored, w.beyond:
		return true
	case "":
		return obj.GetLabels()["world"] == w.namespace
	}
	return false
}

func (w *readWorld) namespaceOf(kind string) string {
	if kind == "PriorityClass" {
		return ""
	}
	return w.namespace
}

// asked returns the members that make a call. Where all members ask the API server, one of them does.
func (w *readWorld) asked(c readCall) []*readMember {
	if c.live() || w.inPlaceOfTheCache(c) || c.plain() {
		return w.members[c.member : c.member+1]
	}
	return w.members
}

// shares reports whether a List is answered by this member's share.
func (w *readWorld) shares(c readCall) bool {
	switch {
	case !c.list || c.live() || c.form == kindlessForm:
		return false
	case c.by == byShare:
		return c.kind != "ServiceAccount"
	}
	switch c.kind {
	case "ConfigMap", "Secret":
		return c.from == inMaps
	case "PriorityClass":
		return c.from == inClasses
	}
	return false
}

// options are those of all managers.
func (w *readWorld) options(logger logr.Logger) ctrl.Options {
	return ctrl.Options{
		Logger: logger, Metrics: server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 4},
		Client:     client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{w.namespace: {}, w.colored: {LabelSelector: colored}},
			ByObject: map[client.Object]cache.ByObject{ // others share the API server
				&schedulingv1.PriorityClass{}: {Label: labels.SelectorFromSet(labels.Set{"world": w.namespace})},
			},
		},
	}
}

func newReadWorld(t *testing.T) *readWorld {
	ctrl.SetLogger(logr.Discard())
	w := &readWorld{namespace: controlplane.Namespace(t), colored: controlplane.Namespace(t),
		beyond: controlplane.Namespace(t), direct: adminClient(t)}
	r := rand.New(rand.NewPCG(*differentialSeed, 0))
	for n := range anchors {
		for _, kind := range []string{"ConfigMap", "PriorityClass"} {
			w.create(t, w.object(r, kind, w.namespace, fmt.Sprintf("%s-anchor-%d", w.namespace, n)))
		}
	}
	cfg := controlplane.For(t).Config()
	cfg.QPS = -1
	var err error
	if w.stock, err = ctrl.NewManager(rest.CopyConfig(cfg), w.options(silent)); err != nil {
		t.Fatal(err)
	}
	start(t, w.stock)
	done := make(chan struct{})
	for n := range worldMembers {
		w.replicas = append(w.replicas, w.join(t, cfg, fmt.Sprint("m", n), done))
	}
	t.Cleanup(func() { // before the members leave
		w.ready.Store(false)
		close(done)
	})
	eventually(t, time.Minute, settled(w.replicas...))
	w.ready.Store(true)
	return w
}

// rest has the members come to rest, and reports whether they were not. On a machine that is too busy one may lose its
// slots, and slots do not come back while reconciles last.
func (w *readWorld) rest(t *testing.T) (moved bool) {
	if settled(w.replicas...)() == "" {
		return false
	}
	w.ready.Store(false)
	for _, m := range w.members {
		for _, calls := range m.sessions {
			select {
			case calls <- nil: // the end of the reconcile
			case <-time.After(time.Second): // there is none
			}
		}
	}
	eventually(t, 5*time.Minute, settled(w.replicas...))
	w.ready.Store(true)
	return true
}

// start adds the index and runs a manager until the test's end.
func start(t *testing.T, m manager.Manager) *replica {
	err := m.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, colorIndex, func(obj client.Object) []string {
		return []string{obj.GetLabels()["color"]}
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	out := &replica{stop: cancel, done: make(chan error, 1)}
	out.Manager, _ = m.(*ctrlrt.Manager)
	go func() { out.done <- m.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-out.done)
	})
	return out
}

// join starts a member with both controllers.
func (w *readWorld) join(t *testing.T, cfg *rest.Config, pod string, done <-chan struct{}) *replica {
	ru, err := rota.New(cfg, rota.Options{Name: "test", Namespace: w.namespace, Logger: silent,
		Identity: rota.Identity{Pod: pod}, LeaseDuration: 4 * leaseDuration, RetryPeriod: leaseDuration / 10})
	require.NoError(t, err)
	mgr, err := ctrlrt.NewManager(cfg, ru, w.options(silent))
	require.NoError(t, err)
	m := &readMember{Manager: mgr, pod: pod, sessions: map[string]chan func(context.Context){
		inMaps: make(chan func(context.Context)), inClasses: make(chan func(context.Context))}}
	err = ctrlrt.NewControllerManagedBy(mgr).Named(inMaps).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).
		Complete(&session{calls: m.sessions[inMaps], ready: &w.ready, done: done})
	require.NoError(t, err)
	err = ctrlrt.NewControllerManagedBy(mgr).Named(inClasses).For(&schedulingv1.PriorityClass{}).
		Complete(&session{calls: m.sessions[inClasses], ready: &w.ready, done: done})
	require.NoError(t, err)
	w.members = append(w.members, m)
	return start(t, mgr)
}

// object returns an object with random labels; a Secret may have an owner.
func (w *readWorld) object(r *rand.Rand, kind, namespace, name string) client.Object {
	obj := emptyObject(kind, typedForm)
	if kind != "PriorityClass" {
		obj.SetNamespace(namespace)
	}
	obj.SetName(name)
	obj.SetLabels(map[string]string{"world": w.namespace})
	if color := pick(r, "red", "blue", ""); color != "" {
		obj.GetLabels()["color"] = color
	}
	if kind == "Secret" && r.IntN(4) > 0 {
		obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap",
			Name: w.name(r.IntN(worldObjects)), UID: "1", Controller: ptr.To(true)}})
	}
	return obj
}

func (w *readWorld) create(t *testing.T, obj client.Object) {
	t.Helper()
	require.NoError(t, w.direct.Create(t.Context(), obj))
	if obj.GetNamespace() == "" {
		t.Cleanup(func() { _ = w.direct.Delete(context.Background(), obj) })
	}
}

// change deletes some objects, creates some, also under the names of those, and gives others other labels and owners.
func (w *readWorld) change(t *testing.T, r *rand.Rand) {
	for _, kind := range []string{"ConfigMap", "Secret", "PriorityClass", "ServiceAccount"} {
		for _, namespace := range []string{w.namespace, w.colored, w.beyond} {
			for n := range worldObjects {
				if obj := w.object(r, kind, namespace, w.name(n)); r.IntN(3) > 0 {
					w.replace(t, r, obj)
				}
			}
			if kind == "PriorityClass" {
				break
			}
		}
	}
}

// replace updates an object, deletes it, or has another one in its place.
func (w *readWorld) replace(t *testing.T, r *rand.Rand, obj client.Object) {
	if r.IntN(2) == 0 {
		switch err := w.direct.Update(t.Context(), obj); {
		case err == nil:
			return
		case !apierrors.IsNotFound(err):
			t.Fatal(err)
		}
	}
	if err := w.direct.Delete(t.Context(), obj); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if r.IntN(3) > 0 {
		w.create(t, obj)
	}
}

// await waits until all caches of all managers show the objects as they are.
func (w *readWorld) await(t *testing.T) {
	for kind := range readKinds {
		now := w.versions(t, kind)
		for _, form := range []string{typedForm, unstructuredForm, metadataForm} {
			c := readCall{list: true, kind: kind, form: form, from: outside, by: byClient}
			eventually(t, time.Minute, func() string {
				if problem := outdated(kind, now, c.make(t.Context(), w.stock.GetClient())); problem != "" {
					return "stock: " + problem
				}
				shares := answer{objects: map[client.ObjectKey]client.Object{}}
				share := c
				share.by = byShare
				for _, m := range w.members {
					for key, obj := range share.make(t.Context(), m.GetClient()).objects {
						shares.objects[key] = obj
					}
				}
				return outdated(kind, now, shares)
			})
		}
	}
}

// versions returns a kind's objects that the caches select, as the API server has them.
func (w *readWorld) versions(t *testing.T, kind string) map[client.ObjectKey]client.Object {
	list := readCall{list: true, kind: kind, form: typedForm, by: byClient}
	list.options = []readOption{{"MatchingLabels", "", client.MatchingLabels{"world": w.namespace}}}
	a := list.make(t.Context(), w.direct)
	if a.err != nil {
		t.Fatal(a.err)
	}
	maps.DeleteFunc(a.objects, func(key client.ObjectKey, obj client.Object) bool {
		return key.Namespace == w.beyond || key.Namespace == w.colored && !colored.Matches(labels.Set(obj.GetLabels()))
	})
	return a.objects
}

// outdated says what an answer does not have as it is now.
func outdated(kind string, now map[client.ObjectKey]client.Object, a answer) string {
	if a.err != nil {
		return a.err.Error()
	}
	for key, obj := range a.objects {
		_, has := now[key]
		if !has && obj.GetLabels()["world"] != "" {
			return fmt.Sprintf("%s %s is still there", kind, key)
		}
	}
	for key, obj := range now {
		shared := kind != "Secret" || metav1.GetControllerOf(obj) != nil
		if got, has := a.objects[key]; shared && (!has || got.GetResourceVersion() != obj.GetResourceVersion()) {
			return fmt.Sprintf("%s %s is not as it is now", kind, key)
		}
	}
	return ""
}
