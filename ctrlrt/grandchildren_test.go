package ctrlrt_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// keepChild returns a reconciler that has for each parent a child of the same name with one more letter.
func keepChild[P, C client.Object](mgr *ctrlrt.Manager, letter string, newParent func() P,
	newChild func() C,
) reconcile.Func {
	c := mgr.GetClient()
	return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		parent := newParent()
		if err := c.Get(ctx, req.NamespacedName, parent); err != nil || parent.GetDeletionTimestamp() != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		child := newChild()
		child.SetNamespace(req.Namespace)
		child.SetName(req.Name + letter)
		_, err := controllerutil.CreateOrUpdate(ctx, c, child, func() error {
			child.SetAnnotations(map[string]string{"value": parent.GetAnnotations()["value"]})
			child.SetOwnerReferences(nil) // a namesake of its parent may have left it behind
			return controllerutil.SetControllerReference(parent, child, mgr.GetScheme())
		})
		return reconcile.Result{}, err
	}
}

// A kind that one controller owns and another one is for: Secrets own ConfigMaps, ConfigMaps own ServiceAccounts. The
// ConfigMap's slot is another than its owner's, and both members have to see it.
func TestGrandchildren(t *testing.T) {
	t.Parallel()
	for _, o := range []rota.Options{{}, {Delivery: sharding.SlotLabel}, {Delivery: sharding.ShardSelector}} {
		t.Run(o.Delivery.String(), func(t *testing.T) { testGrandchildren(t, o) })
	}
}

func testGrandchildren(t *testing.T, o rota.Options) {
	t.Parallel()
	const families = 24
	c, namespace := adminClient(t), controlplane.Namespace(t)
	name := func(i int, suffix string) client.ObjectKey {
		return client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("family-%d%s", i, suffix)}
	}
	for i := range families {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name(i, "").Name,
			Annotations: map[string]string{"value": "1"}}}
		require.NoError(t, c.Create(t.Context(), secret))
	}
	start := func(pod string) *replica {
		return startMember(t, namespace, pod, o, func(mgr *ctrlrt.Manager) error {
			secret, cm := func() *corev1.Secret { return &corev1.Secret{} },
				func() *corev1.ConfigMap { return &corev1.ConfigMap{} }
			account := func() *corev1.ServiceAccount { return &corev1.ServiceAccount{} }
			err := ctrlrt.NewControllerManagedBy(mgr).For(secret()).Owns(cm()).Complete(keepChild(mgr, "c", secret, cm))
			if err != nil {
				return err
			}
			return ctrlrt.NewControllerManagedBy(mgr).For(cm()).Owns(account()).Complete(keepChild(mgr, "a", cm, account))
		})
	}
	// right says what is missing until all families have the value, and members list what is in their share and no
	// more.
	right := func(value string, members ...*replica) func() string {
		return func() string {
			if problem := settled(members...)(); problem != "" {
				return problem
			}
			for i := range families {
				for suffix, obj := range map[string]client.Object{"c": &corev1.ConfigMap{}, "ca": &corev1.ServiceAccount{}} {
					if err := c.Get(t.Context(), name(i, suffix), obj); err != nil {
						return err.Error()
					}
					if got := obj.GetAnnotations()["value"]; got != value {
						return fmt.Sprintf("%T %s has value %q, want %q", obj, obj.GetName(), got, value)
					}
				}
			}
			var all corev1.ConfigMapList
			if err := c.List(t.Context(), &all, client.InNamespace(namespace)); err != nil {
				return err.Error()
			}
			for _, m := range members {
				var list corev1.ConfigMapList
				if err := m.GetClient().List(t.Context(), &list, ctrlrt.Share); err != nil {
					return err.Error()
				}
				have := map[string]bool{}
				for _, cm := range list.Items {
					if have[cm.Name] {
						return fmt.Sprintf("%s lists %s twice", m.Rota().ID(), cm.Name)
					}
					have[cm.Name] = true
				}
				for _, cm := range all.Items {
					if cm.Name == "rota-test" || cm.Name == "test" {
						continue // the table
					}
					if mine := inShare(m.Rota(), configMapKind, &cm); mine != have[cm.Name] {
						return fmt.Sprintf("%s: %s in its share: %t, listed: %t", m.Rota().ID(), cm.Name, mine, have[cm.Name])
					}
				}
			}
			return ""
		}
	}
	disturb := func(value string) {
		t.Helper()
		for i := range families {
			secret := &corev1.Secret{}
			require.NoError(t, c.Get(t.Context(), name(i, ""), secret))
			secret.Annotations["value"] = value
			require.NoError(t, c.Update(t.Context(), secret))
			var victim client.Object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
				Name: name(i, "c").Name}}
			if i%2 == 1 {
				victim = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name(i, "ca").Name}}
			}
			if err := c.Delete(t.Context(), victim); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		}
	}
	a, b := start("a"), start("b")
	eventually(t, 40*time.Second, right("1", a, b))
	disturb("2")
	eventually(t, 30*time.Second, right("2", a, b))
	d := start("d")
	disturb("3")
	eventually(t, 60*time.Second, right("3", a, b, d))
	go a.stop()
	disturb("4")
	a.leave(t)
	eventually(t, 60*time.Second, right("4", b, d))
}
