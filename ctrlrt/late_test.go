package ctrlrt_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// activation is a rota whose members shard kinds one after the other, while they work.
type activation struct {
	t                *testing.T
	client           client.Client
	namespace, group string

	mu      sync.Mutex
	busy    map[string]string         // who reconciles an object, by kind and name
	seen    map[string]map[string]int // reconciles, by kind and name, by member
	problem error
}

type activated struct {
	*replica
	pod  string
	dead *atomic.Bool // its requests fail
}

func (a *activation) kind(i int) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: a.group, Version: "v1", Kind: fmt.Sprint("Gadget", i)}
}

func (a *activation) object(kind schema.GroupVersionKind) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	return obj
}

// install installs the definition of a kind, and objects of it.
func (a *activation) install(i, objects int) {
	a.t.Helper()
	plural := fmt.Sprint("gadget", i, "s")
	require.NoError(a.t, controlplane.For(a.t).InstallCRDs(a.t.Context(), fmt.Appendf(nil, `{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "%[1]s.%[2]s"},
		"spec": {"group": %[2]q, "scope": "Namespaced", "names": {"kind": "Gadget%[3]d", "plural": %[1]q},
			"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
				{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`, plural, a.group, i)))
	for n := range objects {
		obj := a.object(a.kind(i))
		obj.SetNamespace(a.namespace)
		obj.SetName(fmt.Sprint("object-", n))
		require.NoError(a.t, a.client.Create(a.t.Context(), obj))
	}
}

func (a *activation) start(pod string) *activated {
	m := &activated{pod: pod, dead: &atomic.Bool{}}
	cfg := rest.CopyConfig(controlplane.For(a.t).Config())
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if m.dead.Load() {
				return nil, errors.New("the network is down")
			}
			return next.RoundTrip(req)
		})
	})
	m.replica = startMemberVia(a.t, cfg, a.namespace, pod, rota.Options{}, func(mgr *ctrlrt.Manager) error {
		return a.build(mgr, pod, &corev1.ConfigMap{})
	})
	return m
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// build builds a sharded controller, which notes what it reconciles.
func (a *activation) build(mgr *ctrlrt.Manager, pod string, obj client.Object) error {
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	return ctrlrt.NewControllerManagedBy(mgr).For(obj).Complete(reconcile.Func(
		func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			key := kind + "/" + req.Name
			a.mu.Lock()
			if other := a.busy[key]; other != "" && a.problem == nil {
				a.problem = fmt.Errorf("%s is reconciled by %s and %s at once", key, other, pod)
			}
			a.busy[key] = pod
			if a.seen[key] == nil {
				a.seen[key] = map[string]int{}
			}
			a.seen[key][pod]++
			a.mu.Unlock()
			time.Sleep(time.Millisecond)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.busy[key] = ""
			return reconcile.Result{}, nil
		}))
}

// activate has a member shard a kind from now on.
func (a *activation) activate(m *activated, i int) {
	a.t.Helper()
	require.NoError(a.t, a.build(m.Manager, m.pod, a.object(a.kind(i))))
}

// complete waits until every object of a kind was reconciled, each by its owner among the members.
func (a *activation) complete(i, objects int, members ...*activated) {
	a.t.Helper()
	kind := a.kind(i)
	eventually(a.t, time.Minute, func() string {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.problem != nil {
			a.t.Fatal(a.problem)
		}
		for n := range objects {
			name := types.NamespacedName{Namespace: a.namespace, Name: fmt.Sprint("object-", n)}
			at := slices.IndexFunc(members, func(m *activated) bool { return m.Rota().Owns(kind.GroupKind(), name) })
			if at < 0 || a.seen[kind.Kind+"/"+name.Name][members[at].pod] == 0 {
				return fmt.Sprintf("%s %s was not reconciled by its owner: %v", kind.Kind, name.Name, a.seen[kind.Kind+"/"+name.Name])
			}
		}
		return ""
	})
}

// Members activate kinds while they work, one after the other, as Crossplane's providers do when definitions are
// installed. Members without a kind, members that come and leave, and one that is cut off meanwhile, do not hold up the others.
func TestKindsAtRunTime(t *testing.T) {
	const kinds, objects = 10, 12
	a := &activation{t: t, client: adminClient(t), namespace: controlplane.Namespace(t), busy: map[string]string{},
		seen: map[string]map[string]int{}}
	a.group = a.namespace + ".rota.dev"
	members := []*activated{a.start("a"), a.start("b"), a.start("c")}
	eventually(t, time.Minute, settled(members[0].replica, members[1].replica, members[2].replica))
	keys := []types.NamespacedName{}
	for i := range 50 {
		cm := configMap(a.namespace, fmt.Sprint("config-", i), "1")
		require.NoError(t, a.client.Create(t.Context(), cm))
		keys = append(keys, client.ObjectKeyFromObject(cm))
	}
	churn(t, a.client, keys)
	for i := range kinds {
		a.install(i, objects)
		for _, m := range members {
			a.activate(m, i)
		}
		switch i {
		case 3: // one comes, and activates what there is
			d := a.start("d")
			eventually(t, time.Minute, settled(members[0].replica, members[1].replica, members[2].replica, d.replica))
			for j := range i + 1 {
				a.activate(d, j)
			}
			members = append(members, d)
		case 5:
			members[0].leave(t)
			members = members[1:]
		case 7: // one is cut off while the others activate a kind
			cut := members[0]
			cut.dead.Store(true)
			members = members[1:]
			t.Cleanup(func() { cut.dead.Store(false) })
		}
		a.complete(i, objects, members...)
	}
	for i := range kinds {
		a.complete(i, objects, members...)
	}
}

// With labels, a kind cannot be sharded while the member works: labelling is a duty that is declared at the start.
func TestKindsAtRunTimeWithLabels(t *testing.T) {
	namespace := controlplane.Namespace(t)
	m := startReplica(t, namespace, "a", newJournal(), replicaOptions{delivery: sharding.SlotLabel})
	<-m.Rota().Joined()
	err := ctrlrt.NewControllerManagedBy(m.Manager).For(&corev1.Secret{}).Complete(reconcile.Func(nil))
	require.ErrorSays(t, err, "delivery SlotLabel", "JoinAfter")
}
