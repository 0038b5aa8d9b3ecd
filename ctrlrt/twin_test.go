package ctrlrt

import (
	"context"
	"reflect"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/test/require"
)

// A builder takes one cache from its manager for each source, in the same order each time, so that a source and its
// twin find each other. No controller of a supported version adds handlers to a twin's caches otherwise than here.
func TestTwinsHaveAHandlerForEachSource(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	twin := newTwin(schemeManager{mapper: mapper})
	mapped := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: ctx.Value(startingKey{}).(string) + obj.GetName()}}}
	})
	refused := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() != "refused" })
	twin.builder.For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Watches(&corev1.Service{}, mapped).
		WatchesMetadata(&corev1.Pod{}, mapped, builder.WithPredicates(refused)).WithEventFilter(refused)
	require.NoError(t, twin.build("configs"))
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), startingKey{}, "mapped-"))
	require.NoError(t, twin.start(ctx))
	owned := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", Controller: ptr.To(true)}
	about := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: []metav1.OwnerReference{owned}}
	}
	var got []string
	for _, name := range []string{"a", "refused"} {
		for i, obj := range []client.Object{
			&corev1.ConfigMap{ObjectMeta: about(name)}, &corev1.Secret{ObjectMeta: about(name)},
			&corev1.Service{ObjectMeta: about(name)}, &metav1.PartialObjectMetadata{ObjectMeta: about(name)},
		} {
			for _, r := range twin.answers.ask(twin.caches[i].informer.added(), obj) {
				got = append(got, r.Name)
			}
		}
	}
	if want := []string{"a", "owner", "mapped-a", "mapped-a"}; !reflect.DeepEqual(got, want) || len(twin.caches) != 4 {
		t.Errorf("%d sources enqueue %q, want 4 that enqueue %q", len(twin.caches), got, want)
	}
	cancel() // shuts the queue down
}

// schemeManager is as much of a manager as builders need.
type schemeManager struct {
	manager.Manager
	mapper meta.RESTMapper
}

func (schemeManager) GetScheme() *runtime.Scheme              { return scheme.Scheme }
func (m schemeManager) GetRESTMapper() meta.RESTMapper        { return m.mapper }
func (schemeManager) GetLogger() logr.Logger                  { return logr.Discard() }
func (schemeManager) GetControllerOptions() config.Controller { return config.Controller{} }
