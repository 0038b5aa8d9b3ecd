package ctrlrt_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// TestPredicatesChooseWhatComes: of the objects of a slot that comes, a controller reconciles those that one of its
// sources wants, as a stock controller does that starts. Besides, it reconciles owners that are gone.
func TestPredicatesChooseWhatComes(t *testing.T) {
	controlplane.Essential(t)
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	mine := map[string]string{"class": "mine"}
	create := func(obj client.Object, labels map[string]string) {
		t.Helper()
		obj.SetLabels(labels)
		require.NoError(t, c.Create(t.Context(), obj))
	}
	child := func(owner string, uid types.UID) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "child-of-" + owner,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: uid,
				Controller: ptr.To(true)}}}}
	}
	create(configMap(namespace, "mine", "1"), mine)
	owner := configMap(namespace, "child-is-mine", "1")
	create(owner, nil)
	create(child(owner.Name, owner.UID), mine)
	create(child("gone", "1"), nil)
	create(configMap(namespace, "watch-is-mine", "1"), nil)
	create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "watch-is-mine"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, mine)
	// Those written last come first, so that others would be reconciled before.
	foreign := configMap(namespace, "foreign", "1")
	create(foreign, nil)
	create(child(foreign.Name, foreign.UID), nil)

	mgr := newMember(t, controlplane.For(t).Config(), namespace, "solo", rota.Options{Solo: true})
	seen := make(chan string, 100)
	classed := builder.WithPredicates(predicate.NewPredicateFuncs(func(obj client.Object) bool {
		return obj.GetLabels()["class"] == "mine"
	}))
	err := ctrlrt.NewControllerManagedBy(mgr).Named("chooses").
		For(&corev1.ConfigMap{}, classed).
		Owns(&corev1.Secret{}, classed).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(
			func(_ context.Context, obj client.Object) []reconcile.Request {
				return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(obj)}}
			}), classed).
		Complete(reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
			seen <- r.Name
			return reconcile.Result{}, nil
		}))
	require.NoError(t, err)
	begin(t, mgr)
	want := map[string]bool{"mine": true, "child-is-mine": true, "watch-is-mine": true, "gone": true}
	for len(want) > 0 {
		got := require.Receive(t, seen, 2*time.Minute, "not reconciled: %v", want)
		if !want[got] {
			t.Errorf("%s was reconciled, waiting for %v", got, want)
		}
		delete(want, got)
	}
}
