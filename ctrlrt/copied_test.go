package ctrlrt_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
)

// tally counts events by the names of objects.
type tally struct {
	mu sync.Mutex
	of map[string]int
}

func (c *tally) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[name]++
}

func (c *tally) get(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[name]
}

// An operator gives its children all labels of their parents, those of Rota among them, and applies a child again
// whenever it differs. The children's kind is sharded by its own keys, too. Each child takes one write, and is
// reconciled where its own slot is.
func TestLabelsThatAreCopied(t *testing.T) {
	t.Parallel()
	const objects = 12
	admin, namespace := adminClient(t), controlplane.Namespace(t)
	var writes, parents tally // by children, by Secrets
	seen := map[string]*tally{"a": {}, "b": {}}
	secret := func(i int) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("secret-%d", i), Labels: map[string]string{"app": "x"},
		}}
	}
	childOf := func(s *corev1.Secret) *corev1ac.ConfigMapApplyConfiguration {
		return corev1ac.ConfigMap("child-"+s.Name, namespace).
			WithLabels(maps.Clone(s.Labels)).WithData(map[string]string{"a": "b"}).
			WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Secret").
				WithName(s.Name).WithUID(s.UID).WithController(true))
	}
	copying := func(c client.Client) reconcile.Func {
		return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			var s corev1.Secret
			if err := c.Get(ctx, req.NamespacedName, &s); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			defer parents.add(s.Name + s.Annotations["round"])
			want, have := childOf(&s), &corev1.ConfigMap{}
			err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: *want.Name}, have)
			if client.IgnoreNotFound(err) != nil {
				return reconcile.Result{}, err
			}
			if err == nil {
				ours, err := corev1ac.ExtractConfigMap(have, "copier")
				if err != nil || equality.Semantic.DeepEqual(ours, want) {
					return reconcile.Result{}, err
				}
			}
			return reconcile.Result{}, c.Apply(ctx, want, client.FieldOwner("copier"), client.ForceOwnership)
		}
	}
	start := func(pod string) *replica {
		cfg := rest.CopyConfig(controlplane.For(t).Config())
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodGet && strings.Contains(r.URL.Path, namespace+"/configmaps/") {
					writes.add(path.Base(r.URL.Path))
				}
				return next.RoundTrip(r)
			})
		})
		return startMemberVia(t, cfg, namespace, pod, rota.Options{Delivery: sharding.SlotLabel},
			func(mgr *ctrlrt.Manager) error {
				c := mgr.GetClient()
				if err := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Owns(&corev1.ConfigMap{}).
					Complete(copying(c)); err != nil {
					return err
				}
				return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
					func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
						seen[pod].add(req.Name)
						return reconcile.Result{}, nil
					}))
			})
	}
	a, b := start("a"), start("b")
	eventually(t, 30*time.Second, settled(a, b))
	for i := range objects {
		if err := admin.Create(t.Context(), secret(i)); err != nil {
			t.Fatal(err)
		}
	}
	reconciled := func(round string) func() string {
		return func() string {
			for i := range objects {
				name := secret(i).Name
				if parents.get(name+round) == 0 {
					return name + " was not reconciled, round " + round
				}
				owner := a
				child := types.NamespacedName{Namespace: namespace, Name: "child-" + name}
				if !a.Rota().Owns(configMapKind, child) {
					owner = b
				}
				if seen[owner.Rota().ID()[:1]].get("child-"+name) == 0 {
					return fmt.Sprintf("child-%s was not reconciled by %s, which owns it", name, owner.Rota().ID())
				}
			}
			return ""
		}
	}
	eventually(t, 30*time.Second, reconciled(""))
	for i := range objects {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"round":"2"}}}`))
		if err := admin.Patch(t.Context(), secret(i), patch); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 30*time.Second, reconciled("2"))
	for i := range objects {
		s, child := secret(i), configMap(namespace, "child-"+secret(i).Name, "")
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			t.Fatal(err)
		}
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(child), child); err != nil {
			t.Fatal(err)
		}
		want := maps.Clone(s.Labels)
		of := func(name string) string { return sharding.LabelValue(slot.KeyName.Hash(namespace, name, "")) }
		want[sharding.HashLabel(slot.KeyName, configMapKind)] = of(child.Name)
		want[sharding.OwnerLabel(slot.KeyName, configMapKind)] = of(s.Name)
		if !maps.Equal(child.Labels, want) || s.Labels[sharding.HashLabel(slot.KeyName, secretKind)] != of(s.Name) {
			t.Errorf("labels of %s: %v, want %v", child.Name, child.Labels, want)
		}
		if n := writes.get(child.Name); n != 1 {
			t.Errorf("%d writes to %s, want 1", n, child.Name)
		}
	}
}
