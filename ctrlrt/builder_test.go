package ctrlrt_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// TestBuilderCalls: metadata only, an event filter, mapped events of another kind, and a raw source in one controller.
func TestBuilderCalls(t *testing.T) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	for _, name := range []string{"first", "there"} {
		require.NoError(t, c.Create(t.Context(), configMap(namespace, name, "1")))
	}
	mgr := newMember(t, controlplane.For(t).Config(), namespace, "a", rota.Options{})
	channel := make(chan event.GenericEvent)
	seen := make(chan string, 100)
	reader := mgr.GetClient()
	err := ctrlrt.NewControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}, builder.OnlyMetadata).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
			name := types.NamespacedName{Namespace: namespace, Name: obj.GetLabels()["wakes"]}
			return []reconcile.Request{{NamespacedName: name}}
		})).
		WithEventFilter(predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() != "there" })).
		WatchesRawSource(source.Channel(channel, &handler.EnqueueRequestForObject{})).
		Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			about := &metav1.PartialObjectMetadata{}
			about.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
			if err := reader.Get(ctx, r.NamespacedName, about); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			if about.Name != "test" && !strings.HasPrefix(about.Name, "test.") { // the table itself, and the member's report
				seen <- about.Name
			}
			return reconcile.Result{}, nil
		}))
	require.NoError(t, err)
	begin(t, mgr)
	wait := func(why, want string) {
		t.Helper()
		got := require.Receive(t, seen, 30*time.Second, "%s: %s was not reconciled", why, want)
		if got != want {
			t.Fatalf("%s: %s was reconciled, want %s", why, got, want)
		}
	}
	wait("its slot came, and the filter accepts it", "first")
	require.NoError(t, c.Create(t.Context(), configMap(namespace, "new", "1")))
	wait("it was created", "new")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s",
		Labels: map[string]string{"wakes": "there"}}}
	require.NoError(t, c.Create(t.Context(), secret))
	wait("a Secret was mapped to it", "there")
	channel <- event.GenericEvent{Object: configMap(namespace, "new", "")}
	wait("it came by the channel", "new")
	err = ctrlrt.NewControllerManagedBy(newManager(t)).For(&corev1.Service{}).For(&corev1.Pod{}).Complete(nothing)
	require.ErrorSays(t, err, "For(...)", "once")
}
