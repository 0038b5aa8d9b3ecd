package ctrlrt_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

var nothing = reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, nil
})

func managerOptions() ctrl.Options {
	return ctrl.Options{
		Metrics:    server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	}
}

func newManager(t *testing.T) *ctrlrt.Manager {
	t.Helper()
	cfg := controlplane.For(t).Config()
	mgr, err := ctrlrt.NewManager(cfg, newRota(t, cfg), managerOptions())
	require.NoError(t, err)
	return mgr
}

func newRota(t *testing.T, cfg *rest.Config) *rota.Rota {
	t.Helper()
	r, err := rota.New(cfg, rota.Options{Name: "test", Namespace: controlplane.Namespace(t), NoStockReplicas: true})
	require.NoError(t, err)
	return r
}

func TestAKindIsShardedOrWhole(t *testing.T) {
	t.Run("sharded first, stock controller second", func(t *testing.T) {
		mgr := newManager(t)
		require.NoError(t, ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(nothing))
		// controller-runtime opens the informer when the manager starts.
		stock := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("stock")
		require.NoError(t, stock.WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).Complete(nothing))
		require.ErrorSays(t, mgr.Start(t.Context()), "ConfigMap is sharded", `"configmap"`, `controller "stock"`,
			"ctrlrt.NewControllerManagedBy", "KeepWhole", "Whole")
	})
	t.Run("informer first, sharded second", func(t *testing.T) {
		mgr := newManager(t)
		if _, err := mgr.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
		err := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(nothing)
		require.ErrorSays(t, err, "ConfigMap is to be sharded", `"configmap"`, "KeepWhole", "Whole")
	})
	t.Run("a controller Watches the kind that it is for", func(t *testing.T) {
		mgr := newManager(t)
		err := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Watches(&corev1.ConfigMap{},
			&handler.EnqueueRequestForObject{}).Complete(nothing)
		require.ErrorSays(t, err, `"configmap" Watches`, "WatchesRawSource", "Whole")
	})
	t.Run("a chain of owners of one kind", func(t *testing.T) {
		err := ctrlrt.NewControllerManagedBy(newManager(t)).For(&corev1.ConfigMap{}).Owns(&corev1.ConfigMap{}).
			Complete(nothing)
		require.ErrorSays(t, err, `"configmap"`, "owns objects of the kind that it is for", "MatchEveryOwner")
	})
}

func TestBuilderRefuses(t *testing.T) {
	cfg := controlplane.For(t).Config()
	stock, err := ctrl.NewManager(cfg, managerOptions())
	require.NoError(t, err)
	err = ctrlrt.NewControllerManagedBy(stock).For(&corev1.ConfigMap{}).Complete(nothing)
	require.ErrorSays(t, err, "ctrlrt.NewManager")
	require.ErrorSays(t, ctrlrt.NewControllerManagedBy(newManager(t)).Complete(nothing), "call For")
	err = ctrlrt.NewControllerManagedBy(newManager(t)).For(&corev1.ConfigMap{}).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(true)}).Complete(nothing)
	require.ErrorSays(t, err, "NeedLeaderElection", "ctrl.NewControllerManagedBy")
	err = ctrlrt.NewControllerManagedBy(newManager(t)).For(&corev1.ConfigMap{}).Complete(nil)
	require.ErrorSays(t, err, "non-nil Reconciler")
	mgr := newManager(t)
	require.NoError(t, ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(nothing))
	require.ErrorSays(t, ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(nothing), "configmap", "already")
}

func TestNewManagerRefuses(t *testing.T) {
	cfg := controlplane.For(t).Config()
	o := managerOptions()
	o.Cache.NewInformer = toolscache.NewSharedIndexInformer
	_, err := ctrlrt.NewManager(cfg, newRota(t, cfg), o)
	require.ErrorSays(t, err, "Cache.NewInformer", "leave it out")
	_, err = ctrlrt.NewManager(cfg, nil, managerOptions())
	require.ErrorSays(t, err, "rota.New")
}

func TestMissingPermission(t *testing.T) {
	t.Parallel()
	plane := controlplane.For(t)
	cfg, err := plane.UserConfig("nobody")
	require.NoError(t, err)
	r, err := rota.New(cfg, rota.Options{Name: "test", Namespace: controlplane.Namespace(t)})
	require.NoError(t, err)
	err = r.Run(t.Context())
	require.ErrorSays(t, err, "nobody lacks 12 permissions", "kind: Role\n", "kind: RoleBinding", "resourceNames:\n  - test\n",
		"- leases", "- events", r.Name().Namespace)
	// What it says is all that it takes.
	var missing *permission.MissingError
	if !errors.As(err, &missing) {
		t.Fatalf("%T, want a permission.MissingError", err)
	}
	for doc := range strings.SplitSeq(missing.Manifests(), "---\n") {
		obj := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(doc), obj))
		require.NoError(t, adminClient(t).Create(t.Context(), obj))
	}
	if r, err = rota.New(cfg, rota.Options{Name: "test", Namespace: r.Name().Namespace,
		LeaseDuration: leaseDuration}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	require.Receive(t, r.Joined(), time.Minute, "not joined")
	cancel()
	require.NoError(t, <-done)
}

// Under SlotLabel a member that may not patch labels ends at the start, and says which rule to add.
func TestMissingPermissionToLabel(t *testing.T) {
	t.Parallel()
	plane, admin, namespace := controlplane.For(t), adminClient(t), controlplane.Namespace(t)
	cfg, err := plane.UserConfig("reader-of-" + namespace)
	require.NoError(t, err)
	rules := append(permission.Rules("test"), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"},
		Verbs: []string{"get", "list", "watch"}})
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "reader"}
	for _, obj := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "reader-of-" + namespace}},
		},
	} {
		require.NoError(t, admin.Create(t.Context(), obj))
	}
	mgr := newMember(t, cfg, namespace, "a", rota.Options{Delivery: sharding.SlotLabel, LabelNamespaces: []string{namespace}})
	require.NoError(t, ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Complete(nothing))
	require.ErrorSays(t, mgr.Start(t.Context()), "SlotLabel", "secrets", "patch", "reader-of-"+namespace, "verbs")
}

// A kind that does not exist does not keep those that do from being worked on; the error names it.
func TestMissingKind(t *testing.T) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	mgr := newMember(t, controlplane.For(t).Config(), namespace, "a", rota.Options{}, func(o *ctrl.Options) {
		o.Controller.CacheSyncTimeout = 25 * time.Second
	})
	gadget := &unstructured.Unstructured{}
	gadget.SetGroupVersionKind(schema.GroupVersionKind{Group: "missing.rota.dev", Version: "v1", Kind: "Gadget"})
	require.NoError(t, ctrlrt.NewControllerManagedBy(mgr).For(gadget).Complete(nothing))
	reconciled := make(chan string, 100)
	err := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Complete(reconcile.Func(
		func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
			if r.Namespace == namespace {
				reconciled <- r.Name
			}
			return reconcile.Result{}, nil
		}))
	require.NoError(t, err)
	require.NoError(t, c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name: "s"}}))
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { done <- mgr.Start(ctx) }()
	select {
	case <-reconciled:
	case err := <-done:
		t.Fatalf("the manager ended before the Secret was reconciled: %v", err)
	case <-time.After(24 * time.Second):
		t.Error("a kind that does not exist holds up the others")
	}
	// As always, a controller that cannot start ends its manager after CacheSyncTimeout.
	require.ErrorSays(t, <-done, inSources(gadget))
}

// What needs a leader would run on every replica where there is no leader election.
func TestWithoutLeaderElectionUnshardedIsRefused(t *testing.T) {
	setup := func(t *testing.T, o ctrl.Options, stock controller.Options) *ctrlrt.Manager {
		t.Helper()
		cfg := controlplane.For(t).Config()
		mgr, err := ctrlrt.NewManager(cfg, newRota(t, cfg), o)
		require.NoError(t, err)
		require.NoError(t, ctrl.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Named("stock").WithOptions(stock).
			Complete(nothing))
		require.NoError(t, ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(nothing))
		return mgr
	}
	starts := func(t *testing.T, mgr *ctrlrt.Manager) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, mgr.Start(ctx))
	}
	t.Run("controller and runnable", func(t *testing.T) {
		mgr := setup(t, managerOptions(), controller.Options{})
		require.NoError(t, mgr.Add(manager.RunnableFunc(func(context.Context) error { return nil })))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // it runs on where it is not refused
		defer cancel()
		require.ErrorSays(t, mgr.Start(ctx), `controller "stock"`, "manager.RunnableFunc", "LeaderElectionID", "NeedLeaderElection",
			"ctrlrt.NewControllerManagedBy")
	})
	t.Run("meant for every replica", func(t *testing.T) {
		starts(t, setup(t, managerOptions(), controller.Options{NeedLeaderElection: ptr.To(false)}))
	})
	t.Run("leader election", func(t *testing.T) {
		o := managerOptions()
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, "leader", "default"
		starts(t, setup(t, o, controller.Options{}))
	})
}

// A check of the rota's name would take the place of its own, and nobody would wait for the member.
func TestTheRotasReadinessCheckStays(t *testing.T) {
	mgr, _ := offline(t, "readyz", ctrl.Options{})
	require.ErrorSays(t, mgr.AddReadyzCheck("rota", healthz.Ping), `"rota"`, "has joined", "another name")
	require.NoError(t, mgr.AddReadyzCheck("mine", healthz.Ping))
}

// A program that watches kinds by its users' configuration learns that a kind is sharded. It does not end because of
// that: all members read the same configuration.
func TestARefusedInformerDoesNotEndTheManager(t *testing.T) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	refusals := make(chan error, 100)
	m := startMember(t, namespace, "a", rota.Options{}, func(mgr *ctrlrt.Manager) error {
		watch := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			_, err := mgr.GetCache().GetInformer(ctx, &corev1.ConfigMap{})
			refusals <- err
			return reconcile.Result{}, nil
		})
		if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{}).WithOptions(controller.Options{
			NeedLeaderElection: ptr.To(false)}).Complete(watch); err != nil {
			return err
		}
		if err := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Complete(watch); err != nil {
			return err
		}
		if err := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(nothing); err != nil {
			return err
		}
		_, err := mgr.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})
		require.ErrorSays(t, err, "ConfigMap is sharded", "KeepWhole")
		return nil
	})
	eventually(t, 30*time.Second, settled(m))
	_, err := m.GetCache().GetInformerForKind(t.Context(), corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	require.ErrorSays(t, err, "ConfigMap is sharded", "KeepWhole")
	about := metav1.ObjectMeta{Namespace: namespace, Name: "x"}
	for _, obj := range []client.Object{
		&corev1.Service{ObjectMeta: about, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		&corev1.Secret{ObjectMeta: about},
	} {
		require.NoError(t, c.Create(t.Context(), obj))
		select {
		case err := <-refusals:
			require.ErrorSays(t, err, "ConfigMap is sharded", "KeepWhole")
		case err := <-m.done:
			t.Fatalf("the manager ended: %v", err)
		case <-time.After(30 * time.Second):
			t.Fatalf("the %T was not reconciled", obj)
		}
	}
	select {
	case err := <-m.done:
		t.Fatalf("the manager ended: %v", err)
	default:
	}
	if problem := settled(m)(); problem != "" {
		t.Error(problem)
	}
}

// A source that is refused its informer would try again until it times out. So the manager ends at once.
func TestARefusedSourceEndsTheManager(t *testing.T) {
	t.Parallel()
	everywhere := controller.Options{NeedLeaderElection: ptr.To(false)}
	raw := func(mgr *ctrlrt.Manager) source.Source {
		return source.Kind(mgr.GetCache(), &corev1.ConfigMap{}, &handler.TypedEnqueueRequestForObject[*corev1.ConfigMap]{})
	}
	for _, test := range []struct {
		name  string
		build func(*ctrlrt.Manager) error
	}{
		{"of a stock controller", func(mgr *ctrlrt.Manager) error {
			return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("other").WithOptions(everywhere).
				Complete(nothing)
		}},
		{"of a stock controller with warm-up", func(mgr *ctrlrt.Manager) error {
			o := everywhere
			o.EnableWarmup = ptr.To(true)
			return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("other").WithOptions(o).Complete(nothing)
		}},
		{"of a sharded controller, raw", func(mgr *ctrlrt.Manager) error {
			return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).WatchesRawSource(raw(mgr)).Complete(nothing)
		}},
		{"of a duty, raw", func(mgr *ctrlrt.Manager) error {
			return ctrlrt.NewDutyControllerManagedBy(mgr).For(&corev1.Secret{}).WatchesRawSource(raw(mgr)).Complete(nothing)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			mgr := newManager(t)
			require.NoError(t, ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(nothing))
			require.NoError(t, test.build(mgr))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it runs on where it is not refused
			defer cancel()
			require.ErrorSays(t, mgr.Start(ctx), "ConfigMap is sharded", "KeepWhole")
		})
	}
}
