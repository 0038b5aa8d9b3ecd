package ctrlrt_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// views records how many labelled ConfigMaps each reader of a member saw last, and which ones controllers were woken
// for.
type views struct {
	mu    sync.Mutex
	lists map[string]int
	seen  map[string]map[string]string // by reader, by name, the annotation "changed"
}

func (v *views) list(ctx context.Context, c client.Client, namespace, reader string, opts ...client.ListOption) error {
	var list corev1.ConfigMapList
	if err := c.List(ctx, &list, append(opts, client.InNamespace(namespace),
		client.MatchingLabels{"test": "kept"})...); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lists[reader] = len(list.Items)
	return nil
}

func (v *views) see(reader, name, value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.seen[reader] == nil {
		v.seen[reader] = map[string]string{}
	}
	v.seen[reader][name] = value
}

// ConfigMaps are sharded by one controller and needed whole: by KeepWhole, or since the sharded controller of Secrets
// watches them.
func TestAShardedKindThatIsNeededWhole(t *testing.T) {
	for _, test := range []struct {
		name string
		kept bool
	}{{"kept", true}, {"watched by another sharded controller", false}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			testNeededWhole(t, test.kept)
		})
	}
}

func testNeededWhole(t *testing.T, kept bool) {
	const objects = 24
	c, namespace := adminClient(t), controlplane.Namespace(t)
	for i := range objects {
		cm := configMap(namespace, fmt.Sprint("object-", i), "1")
		cm.Labels = map[string]string{"test": "kept"}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cm.Name}}
		for _, obj := range []client.Object{cm, secret} {
			require.NoError(t, c.Create(t.Context(), obj))
		}
	}
	v := &views{lists: map[string]int{}, seen: map[string]map[string]string{}}
	cfg, live := countingGets(t, "/configmaps/object-")
	const field = "data.value"
	byValue := client.MatchingFields{field: "1"}
	start := func(pod string) *replica {
		return startMemberVia(t, cfg, namespace, pod, rota.Options{}, func(mgr *ctrlrt.Manager) error {
			cached := mgr.GetClient()
			err := mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, field, func(o client.Object) []string {
				return []string{o.(*corev1.ConfigMap).Data["value"]}
			})
			if err != nil {
				return err
			}
			if kept {
				if err := mgr.KeepWhole(&corev1.ConfigMap{}); err != nil {
					return err
				}
				// It is not sharded, and gets all events.
				err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("stock").
					WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
					Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
						var cm corev1.ConfigMap
						if err := cached.Get(ctx, req.NamespacedName, &cm); err != nil {
							return reconcile.Result{}, client.IgnoreNotFound(err)
						}
						v.see(pod+" stock", cm.Name, cm.Annotations["changed"])
						return reconcile.Result{}, v.list(ctx, cached, namespace, pod+" stock", byValue)
					}))
				if err != nil {
					return err
				}
			}
			err = ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
				func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					var cm corev1.ConfigMap
					if err := cached.Get(ctx, req.NamespacedName, &cm); err != nil {
						return reconcile.Result{}, client.IgnoreNotFound(err)
					}
					v.see("configmaps", cm.Name, cm.Annotations["changed"])
					return reconcile.Result{}, v.list(ctx, cached, namespace, pod+" configmaps", byValue)
				}))
			if err != nil {
				return err
			}
			secrets := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{})
			if !kept {
				secrets.Watches(&corev1.ConfigMap{}, &handler.EnqueueRequestForObject{})
			}
			return secrets.Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				var cm corev1.ConfigMap
				if err := cached.Get(ctx, req.NamespacedName, &cm); err != nil {
					return reconcile.Result{}, client.IgnoreNotFound(err)
				}
				v.see("secrets", cm.Name, cm.Annotations["changed"])
				return reconcile.Result{}, v.list(ctx, cached, namespace, pod+" secrets", byValue)
			}))
		})
	}
	a, b := start("a"), start("b")
	eventually(t, 30*time.Second, settled(a, b))
	if s := a.Rota().Status(); s.Owned.Len() != 128 {
		t.Errorf("a owns %d slots, want half of them: work on a kind that is needed whole is shared", s.Owned.Len())
	}
	// The events of all objects come to the controllers that need them.
	for i := range objects {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"changed":"yes"}}}`))
		require.NoError(t, c.Patch(t.Context(), configMap(namespace, fmt.Sprint("object-", i), ""), patch))
	}
	whole := []string{"a secrets", "b secrets"}
	woken := []string{"configmaps"}
	if !kept {
		woken = append(woken, "secrets")
	} else {
		whole = append(whole, "a stock", "b stock", "a configmaps", "b configmaps")
		woken = append(woken, "a stock", "b stock")
	}
	eventually(t, 30*time.Second, func() string {
		v.mu.Lock()
		defer v.mu.Unlock()
		for _, reader := range whole {
			if v.lists[reader] != objects {
				return fmt.Sprintf("%s lists %d objects, want all %d", reader, v.lists[reader], objects)
			}
		}
		for _, reader := range woken {
			for i := range objects {
				if name := fmt.Sprint("object-", i); v.seen[reader][name] != "yes" {
					return fmt.Sprintf("%s did not see the change of %s", reader, name)
				}
			}
		}
		if n, m := v.lists["a configmaps"], v.lists["b configmaps"]; !kept && n+m != objects {
			return fmt.Sprintf("the controller of ConfigMaps lists %d and %d objects, want shares", n, m)
		}
		return ""
	})
	if err := v.list(t.Context(), a.GetClient(), namespace, "outside", byValue); err != nil ||
		v.lists["outside"] != objects {
		t.Errorf("List from outside: %d objects, error %v, want %d", v.lists["outside"], err, objects)
	}
	if n := live.Load(); n > 0 {
		t.Errorf("%d Gets went to the API server, want none", n)
	}
}

// ears are the ConfigMaps that the watches of one member told it of, and whether it could read them then.
type ears struct {
	mu    sync.Mutex
	heard map[string]error
}

// hear is called by handlers of a watch.
func (e *ears) hear(ctx context.Context, c client.Client, obj client.Object) {
	err := c.Get(ctx, client.ObjectKeyFromObject(obj), &corev1.ConfigMap{})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard[obj.GetName()] = err
}

// missing says which of n ConfigMaps were not heard of, or could not be read.
func (e *ears) missing(n int) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range n {
		name := fmt.Sprintf("object-%d", i)
		if err, heard := e.heard[name]; !heard || err != nil {
			return fmt.Sprintf("the watch told of %d of %d objects: %s: %t, %v", len(e.heard), n, name, heard, err)
		}
	}
	return ""
}

// watchOnce returns a reconciler that has its controller, which build makes, watch ConfigMaps from the first reconcile
// on, as programs do whose users name the kinds.
func watchOnce(mgr *ctrlrt.Manager, e *ears,
	build func(reconcile.Reconciler) (controller.Controller, error),
) error {
	var built controller.Controller
	var once sync.Once
	var err error
	built, err = build(reconcile.Func(func(context.Context, reconcile.Request) (_ reconcile.Result, err error) {
		once.Do(func() {
			err = built.Watch(source.Kind(mgr.GetCache(), client.Object(&corev1.ConfigMap{}),
				handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
					e.hear(ctx, mgr.GetClient(), obj)
					return nil
				})))
		})
		return reconcile.Result{}, err
	}))
	return err
}

// A controller that runs may watch a kind of which its member caches a share. It hears of all objects, and can read
// them; the kind's own controllers go on with their shares.
func TestWatchesThatAreAddedAtRunTime(t *testing.T) {
	t.Parallel()
	sharded := func(mgr *ctrlrt.Manager, e *ears) error {
		return watchOnce(mgr, e, ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Named("watcher").Build)
	}
	for _, test := range []struct {
		name  string
		owned bool // the ConfigMaps are sharded by their owners alone
		build func(*ctrlrt.Manager, *ears) error
	}{
		{name: "of a sharded controller", build: sharded},
		{name: "of a sharded controller, a kind that another one owns", owned: true, build: sharded},
		{name: "of a stock controller", build: func(mgr *ctrlrt.Manager, e *ears) error {
			return watchOnce(mgr, e, ctrl.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Named("watcher").WithOptions(
				controller.Options{NeedLeaderElection: ptr.To(false)}).Build)
		}},
		{name: "by a map function", build: func(mgr *ctrlrt.Manager, e *ears) error {
			var once sync.Once
			watch := func(ctx context.Context, _ client.Object) []reconcile.Request {
				once.Do(func() {
					informer, err := mgr.GetCache().GetInformer(ctx, &corev1.ConfigMap{})
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
						e.hear(t.Context(), mgr.GetClient(), obj.(client.Object))
					}}); err != nil {
						t.Error(err)
					}
				})
				return nil
			}
			return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ServiceAccount{}).Named("watcher").
				Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(watch)).Complete(nothing)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			testRunTimeWatch(t, test.owned, test.build)
		})
	}
}

func testRunTimeWatch(t *testing.T, owned bool, build func(*ctrlrt.Manager, *ears) error) {
	const half, all = 10, 20
	c, namespace, j := adminClient(t), controlplane.Namespace(t), newJournal()
	owner := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	require.NoError(t, c.Create(t.Context(), owner))
	create := func(from, to int) {
		for i := from; i < to; i++ {
			obj := configMap(namespace, fmt.Sprintf("object-%d", i), "1")
			require.NoError(t, controllerutil.SetControllerReference(owner, obj, c.Scheme()))
			require.NoError(t, c.Create(t.Context(), obj))
		}
	}
	create(0, half)
	byName := map[string]*ears{}
	start := func(pod string) *replica {
		e := &ears{heard: map[string]error{}}
		byName[pod] = e
		return startMember(t, namespace, pod, rota.Options{}, func(mgr *ctrlrt.Manager) error {
			record := reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
				var obj corev1.ConfigMap
				err := mgr.GetClient().Get(ctx, r.NamespacedName, &obj)
				if strings.HasPrefix(r.Name, "object-") { // there are others in each namespace
					epoch, _ := gate.EpochFrom(ctx)
					j.enter(pod, r.NamespacedName, epoch, obj.ResourceVersion)
					defer j.leave(r.NamespacedName)
				}
				return reconcile.Result{}, client.IgnoreNotFound(err)
			})
			if err := build(mgr, e); err != nil {
				return err
			}
			if owned {
				return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Service{}).Owns(&corev1.ConfigMap{}).Complete(nothing)
			}
			return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(record)
		})
	}
	members := []*replica{start("a"), start("b")}
	eventually(t, hang, settled(members...))
	for i := range all { // each member has some of them
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("trigger-%d", i)}}
		require.NoError(t, c.Create(t.Context(), secret))
	}
	heard := func(n int) {
		t.Helper()
		for i, pod := range []string{"a", "b"} {
			eventually(t, hang, func() string {
				select {
				case err := <-members[i].done:
					members[i].done <- nil
					t.Fatalf("the manager of %s ended: %v", pod, err)
				default:
				}
				return byName[pod].missing(n)
			})
		}
	}
	heard(half)
	create(half, all)
	heard(all)
	if problem := settled(members...)(); problem != "" {
		t.Error(problem)
	}
	if owned {
		return
	}
	eventually(t, hang, func() string {
		if n := j.members(); n["a"]+n["b"] != all || n["a"] == 0 || n["b"] == 0 {
			return fmt.Sprintf("objects by member: %v, want all %d, some at each", n, all)
		}
		return ""
	})
	require.NoError(t, j.problem())
}
