package ctrlrt_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// countingGets returns a configuration that counts the requests for single objects whose path contains a text.
func countingGets(t *testing.T, path string) (cfg *rest.Config, asked *atomic.Int32) {
	t.Helper()
	cfg, asked = controlplane.For(t).Config(), &atomic.Int32{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, path) {
				asked.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	return cfg, asked
}

// startParent starts a member whose controller keeps a ConfigMap of the same data for each Secret.
func startParent(t *testing.T, cfg *rest.Config, namespace, pod string, o rota.Options) *replica {
	t.Helper()
	return startMemberVia(t, cfg, namespace, pod, o, func(mgr *ctrlrt.Manager) error {
		c := mgr.GetClient()
		return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Owns(&corev1.ConfigMap{}).Complete(reconcile.Func(
			func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				var secret corev1.Secret
				if err := c.Get(ctx, req.NamespacedName, &secret); err != nil || secret.DeletionTimestamp != nil {
					return reconcile.Result{}, client.IgnoreNotFound(err)
				}
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: "child-" + secret.Name}}
				_, err := controllerutil.CreateOrUpdate(ctx, c, cm, func() error {
					cm.Data = map[string]string{"value": string(secret.Data["value"])}
					return controllerutil.SetControllerReference(&secret, cm, mgr.GetScheme())
				})
				return reconcile.Result{}, err
			}))
	})
}

// Parent and child meet in one member, and no member caches children of others' parents; what happens to a child is put
// right by its parent's owner, wherever the slots are.
func TestOwnedKindsFollowTheirOwners(t *testing.T) {
	t.Parallel()
	for _, o := range []rota.Options{
		{}, {Delivery: sharding.SlotLabel}, {Delivery: sharding.ShardSelector},
		{Delivery: sharding.SlotLabel, Key: slot.KeyNamespace},
	} {
		t.Run(fmt.Sprint(o.Delivery, o.Key), func(t *testing.T) { testOwnedKinds(t, o) })
	}
}

func testOwnedKinds(t *testing.T, o rota.Options) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	namespaces := []string{namespace}
	if o.Key == slot.KeyNamespace {
		namespaces = spread(t)
		o.LabelNamespaces = namespaces
	}
	var parents []types.NamespacedName
	add := func(i int) {
		t.Helper()
		name := types.NamespacedName{Namespace: namespaces[i/4%len(namespaces)], Name: fmt.Sprintf("secret-%d", i)}
		parents = append(parents, name)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
			Data: map[string][]byte{"value": []byte("1")}}
		require.NoError(t, c.Create(t.Context(), secret))
	}
	for i := range 40 {
		add(i)
	}
	require.NoError(t, c.Create(t.Context(), configMap(namespaces[0], "foreign", "nobody's")))
	// right says what is wrong with the children on the server, and with the members' caches.
	right := func(members ...*replica) func() string {
		return func() string {
			if problem := settled(members...)(); problem != "" {
				return problem
			}
			want := map[types.NamespacedName]bool{}
			for _, name := range parents {
				want[name] = true
			}
			for _, m := range members {
				var children corev1.ConfigMapList
				if err := m.GetClient().List(t.Context(), &children, ctrlrt.Share); err != nil {
					return err.Error()
				}
				if len(children.Items) == 0 && len(members) == 2 {
					return m.Rota().ID() + " has no children"
				}
				for _, cm := range children.Items {
					parent := types.NamespacedName{Namespace: cm.Namespace, Name: cm.Name[len("child-"):]}
					if !m.Rota().Owns(secretKind, parent) {
						return fmt.Sprintf("%s caches %s, whose parent is another member's", m.Rota().ID(), cm.Name)
					}
					if got := cm.Data["value"]; got != "1" {
						return fmt.Sprintf("%s has value %q, want 1", cm.Name, got)
					}
					delete(want, parent)
				}
			}
			if len(want) > 0 {
				return fmt.Sprintf("no member has the children of %v", want)
			}
			return ""
		}
	}
	disturb := func() {
		t.Helper()
		for i, parent := range parents {
			cm := configMap(parent.Namespace, "child-"+parent.Name, "")
			var err error
			switch i % 4 {
			case 0:
				err = c.Delete(t.Context(), cm)
			case 1:
				err = c.Patch(t.Context(), cm, client.RawPatch(types.MergePatchType, []byte(`{"data":{"value":"edited"}}`)))
			case 2: // an orphan is adopted again
				err = c.Patch(t.Context(), cm, client.RawPatch(types.MergePatchType,
					[]byte(`{"metadata":{"ownerReferences":null}}`)))
			}
			require.NoError(t, err)
		}
	}
	cfg, asked := countingGets(t, "/configmaps/child-")
	a, b := startParent(t, cfg, namespace, "a", o), startParent(t, cfg, namespace, "b", o)
	eventually(t, 30*time.Second, right(a, b))
	// A new parent's child is not there, which the cache knows if it is told of all children.
	asked.Store(0)
	for i := range 20 {
		add(40 + i)
	}
	eventually(t, 30*time.Second, right(a, b))
	selects := o.Delivery == sharding.SlotLabel || o.Delivery == sharding.ShardSelector
	if n := asked.Load(); !selects && n >= 20 {
		t.Errorf("the API server was asked %d times for 20 new children", n)
	}
	disturb()
	eventually(t, 20*time.Second, right(a, b))
	d := startParent(t, cfg, namespace, "d", o)
	disturb()
	eventually(t, 60*time.Second, right(a, b, d))
	go a.stop()
	disturb()
	a.leave(t)
	eventually(t, 60*time.Second, right(b, d))
	// Whoever asks for an object by name gets it.
	for _, m := range []*replica{b, d} {
		for _, name := range []types.NamespacedName{
			{Namespace: namespaces[0], Name: "foreign"}, {Namespace: parents[0].Namespace, Name: "child-secret-0"},
			{Namespace: parents[13].Namespace, Name: "child-secret-13"},
			{Namespace: parents[38].Namespace, Name: "child-secret-38"},
		} {
			require.NoError(t, m.GetClient().Get(t.Context(), name, &corev1.ConfigMap{}))
		}
	}
}

// spread returns namespaces whose slots are in all quarters of a rota, two in each, so that each of two members has
// some.
func spread(t *testing.T) []string {
	t.Helper()
	var out []string
	var quarters [4]int
	for tries := 0; len(out) < 2*len(quarters); tries++ {
		if tries == 200 {
			t.Fatalf("of %d namespaces the quarters have %v: names do not spread over slots", tries, quarters)
		}
		name := controlplane.Namespace(t)
		n := slot.Count(slot.DefaultCount).Of(slot.KeyNamespace.Hash(name, "", ""))
		if q := int(n) * len(quarters) / slot.DefaultCount; quarters[q] < 2 {
			quarters[q]++
			out = append(out, name)
		}
	}
	return out
}

func TestOwnedKindsKeptWhole(t *testing.T) {
	build := func(t *testing.T, prepare func(*ctrlrt.Manager), opts ...builder.OwnsOption) (*ctrlrt.Manager, error) {
		t.Helper()
		mgr := newManager(t)
		if prepare != nil {
			prepare(mgr)
		}
		return mgr, ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Owns(&corev1.ConfigMap{},
			opts...).Complete(nothing)
	}
	shared := func(mgr *ctrlrt.Manager) bool {
		cm := configMap("a", "b", "")
		cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "c", UID: "1",
			Controller: ptr.To(true)}}
		_, ok := mgr.Rota().Adapt(adapter.Grant()).Share.SlotOf(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), cm)
		return ok
	}
	keep := func(mgr *ctrlrt.Manager) {
		require.NoError(t, mgr.KeepWhole(&corev1.ConfigMap{}))
	}
	t.Run("owned", func(t *testing.T) {
		mgr, err := build(t, nil)
		if err != nil || !shared(mgr) {
			t.Error(err, "an owned kind is not shared")
		}
		if keep(mgr); shared(mgr) {
			t.Error("KeepWhole comes too late")
		}
	})
	t.Run("kept", func(t *testing.T) {
		if mgr, err := build(t, keep); err != nil || shared(mgr) {
			t.Error(err, "a kind kept whole is shared")
		}
	})
	t.Run("every owner", func(t *testing.T) {
		if mgr, err := build(t, nil, builder.MatchEveryOwner); err != nil || shared(mgr) {
			t.Error(err, "a kind whose objects have several owners is shared")
		}
	})
	t.Run("owned, and needed whole by a stock controller", func(t *testing.T) {
		mgr, err := build(t, nil)
		require.NoError(t, err)
		require.NoError(t, ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("stock").
			WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).Complete(nothing))
		require.ErrorSays(t, mgr.Start(t.Context()), "ConfigMap", `"secret"`, "KeepWhole")
	})
}
