package ctrlrt_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// Objects that refer to a Secret are reconciled by their owners when the Secret changes, whichever member saw the event
// and wherever their slots are on the way to: no wake-up is lost.
func TestSharedKindsWakeOwners(t *testing.T) {
	t.Parallel()
	for _, kind := range []sharding.Mode{sharding.Filter, sharding.SlotLabel, sharding.ShardSelector} {
		t.Run(kind.String(), func(t *testing.T) { testSharedKinds(t, kind) })
	}
}

func testSharedKinds(t *testing.T, kind sharding.Mode) {
	t.Parallel()
	const objects, secrets, field = 60, 3, "data.secret"
	c, namespace := adminClient(t), controlplane.Namespace(t)
	secretName := func(i int) string { return fmt.Sprintf("shared-%d", i%secrets) }
	var mu sync.Mutex
	saw := map[string]string{} // by object, the Secret's value that its last reconcile saw
	start := func(pod string) *replica {
		return startMember(t, namespace, pod, rota.Options{Delivery: kind}, func(mgr *ctrlrt.Manager) error {
			cached := mgr.GetClient()
			err := mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, field, func(o client.Object) []string {
				return []string{o.(*corev1.ConfigMap).Data["secret"]}
			})
			if err != nil {
				return err
			}
			wake := func(ctx context.Context, secret client.Object) []reconcile.Request {
				var list corev1.ConfigMapList
				if err := cached.List(ctx, &list, client.InNamespace(namespace),
					client.MatchingFields{field: secret.GetName()}); err != nil {
					t.Error(err)
				}
				var out []reconcile.Request
				for _, cm := range list.Items {
					out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&cm)})
				}
				return out
			}
			return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).
				Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(wake)).
				Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					var cm corev1.ConfigMap
					var secret corev1.Secret
					if err := cached.Get(ctx, req.NamespacedName, &cm); err != nil || cm.Data["secret"] == "" {
						return reconcile.Result{}, client.IgnoreNotFound(err)
					}
					mu.Lock() // over the read, so that a late one does not look newer than it is
					defer mu.Unlock()
					if err := cached.Get(ctx, types.NamespacedName{Namespace: namespace, Name: cm.Data["secret"]},
						&secret); err != nil {
						return reconcile.Result{}, err
					}
					saw[cm.Name] = string(secret.Data["value"])
					return reconcile.Result{}, nil
				}))
		})
	}
	set := func(value string) {
		for i := range secrets {
			patch := fmt.Appendf(nil, `{"stringData":{"value":%q}}`, value)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secretName(i)}}
			require.NoError(t, c.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, patch)))
		}
	}
	for i := range secrets {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secretName(i)}}
		require.NoError(t, c.Create(t.Context(), secret))
	}
	for i := range objects {
		cm := configMap(namespace, fmt.Sprintf("object-%d", i), "1")
		cm.Data["secret"] = secretName(i)
		require.NoError(t, c.Create(t.Context(), cm))
	}
	all := func(value string) func() string {
		return func() string {
			mu.Lock()
			defer mu.Unlock()
			for i := range objects {
				if name := fmt.Sprintf("object-%d", i); saw[name] != value {
					return fmt.Sprintf("%s was last reconciled with value %q of its Secret, want %q", name, saw[name], value)
				}
			}
			return ""
		}
	}
	a, b := start("a"), start("b")
	eventually(t, 30*time.Second, settled(a, b))
	// quiet changes Secrets when no slot is on its way, so that no object is reconciled but by its wake-up.
	quiet := func(value string) {
		t.Helper()
		set(value)
		eventually(t, 10*time.Second, all(value))
	}
	quiet("started")
	members := []*replica{a, b}
	for round := range 3 {
		members = append(members, start(fmt.Sprintf("d%d", round)))
		value := ""
		deadline := time.After(20 * time.Second)
		for i := 0; settled(members...)() != ""; i++ {
			value = fmt.Sprintf("join-%d-%d", round, i)
			set(value)
			select {
			case <-time.After(20 * time.Millisecond):
			case <-deadline:
				t.Fatal(settled(members...)())
			}
		}
		eventually(t, 10*time.Second, all(value))
		quiet(fmt.Sprintf("joined-%d", round))
		leaver := members[0]
		members = members[1:]
		leaver.stop()
		tick := time.NewTicker(10 * time.Millisecond)
		for i := range 30 {
			value = fmt.Sprintf("leave-%d-%d", round, i)
			set(value)
			<-tick.C
		}
		tick.Stop()
		leaver.leave(t)
		eventually(t, 10*time.Second, all(value))
		eventually(t, 10*time.Second, settled(members...))
		quiet(fmt.Sprintf("left-%d", round))
	}
}
