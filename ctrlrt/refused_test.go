package ctrlrt_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
)

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
		wantError(t, err, "ConfigMap is sharded", "KeepWhole")
		return nil
	})
	eventually(t, 30*time.Second, settled(m))
	_, err := m.GetCache().GetInformerForKind(t.Context(), corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	wantError(t, err, "ConfigMap is sharded", "KeepWhole")
	about := metav1.ObjectMeta{Namespace: namespace, Name: "x"}
	for _, obj := range []client.Object{
		&corev1.Service{ObjectMeta: about, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		&corev1.Secret{ObjectMeta: about},
	} {
		noError(t, c.Create(t.Context(), obj))
		select {
		case err := <-refusals:
			wantError(t, err, "ConfigMap is sharded", "KeepWhole")
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
			noError(t, ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(nothing))
			noError(t, test.build(mgr))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it runs on where it is not refused
			defer cancel()
			wantError(t, mgr.Start(ctx), "ConfigMap is sharded", "KeepWhole")
		})
	}
}
