// The Website operator. README.md compares its two forms, stock and sharded.
package main

import (
	"context"
	"flag"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/examples/website/controller"
)

func main() {
	stateDir := flag.String("state-dir", "/var/lib/websites", "folder of the published pages, shared by all replicas")
	probes := flag.String("health-probe-bind-address", ":8081", "where /healthz and /readyz are served")
	metrics := flag.String("metrics-bind-address", ":8080", "where /metrics is served; 0: nowhere")
	namespaces := flag.String("namespaces", "", "namespaces to watch, separated by commas (default: all)")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	ctx := ctrl.SetupSignalHandler()

	scheme := runtime.NewScheme()
	check(clientgoscheme.AddToScheme(scheme))
	check(webv1.AddToScheme(scheme))

	cfg := ctrl.GetConfigOrDie()
	r := must(rota.New(cfg, options))
	mgr := must(ctrlrt.NewManager(cfg, r, ctrl.Options{
		Scheme: scheme, HealthProbeBindAddress: *probes, Metrics: metricsserver.Options{BindAddress: *metrics},
		Cache: controller.Within(*namespaces),
	}))
	check(mgr.AddHealthzCheck("healthz", healthz.Ping))
	check(mgr.AddReadyzCheck("readyz", healthz.Ping))
	check(setUp(ctx, mgr, *stateDir))
	check(mgr.Start(ctx))
}

// setUp adds the operator's controller to a manager.
func setUp(ctx context.Context, mgr ctrl.Manager, stateDir string) error {
	if err := controller.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	reconciler := &controller.WebsiteReconciler{
		Client:   mgr.GetClient(),
		Recorder: mgr.GetEventRecorderFor("website-operator"),
		Pages:    controller.Pages{Dir: stateDir},
	}
	return ctrlrt.NewControllerManagedBy(mgr).
		For(&webv1.Website{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.Service{}).
		Owns(&corev1.ConfigMap{}).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(reconciler.SitesOf)).
		Complete(reconciler)
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		ctrl.Log.Error(err, "The operator ends")
		os.Exit(1)
	}
}
