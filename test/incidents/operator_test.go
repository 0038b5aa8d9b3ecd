package incidents_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/rig/process"
)

// variable has the configuration of a replica: this program is one when it is set.
const variable = "ROTA_INCIDENTS"

// Titles of Websites that the operator does not get done.
const (
	hangs  = "hangs"
	fails  = "fails"
	panics = "panics"
	kills  = "kills"
)

// replica is what one process of the operator is told.
type replica struct {
	Kubeconfig, Namespace, Pod string
	Slots                      slot.Count
	Lease                      time.Duration
}

func TestMain(m *testing.M) {
	if os.Getenv(variable) != "" {
		var r replica
		process.EndWithInput(1)
		os.Exit(process.Main(variable, "this test", &r, r.run))
	}
	controlplane.Parallel(4)
	controlplane.Main(m, controlplane.Options{ControllerManager: true})
}

func (r *replica) run(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", r.Kubeconfig)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), webv1.AddToScheme(scheme)); err != nil {
		return err
	}
	member, err := rota.New(cfg, rota.Options{
		Name: name, Namespace: r.Namespace, Identity: rota.Identity{Pod: r.Pod}, Slots: r.Slots, LeaseDuration: r.Lease,
		Logger: ctrl.Log, LabelNamespaces: []string{r.Namespace},
	})
	if err != nil {
		return err
	}
	mgr, err := ctrlrt.NewManager(cfg, member, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{r.Namespace: {}}},
	})
	if err != nil {
		return err
	}
	if err := ctrlrt.NewControllerManagedBy(mgr).For(&webv1.Website{}).Complete(&reconciler{mgr.GetClient()}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// reconciler writes the generation that it has seen into the status.
type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var site webv1.Website
	if err := r.Get(ctx, req.NamespacedName, &site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	switch site.Spec.Title {
	case hangs:
		select {}
	case fails:
		return ctrl.Result{}, fmt.Errorf("the bucket of %s is not there", site.Name)
	case panics:
		panic("assignment to entry in nil map")
	case kills:
		os.Exit(2)
	}
	if site.Status.ObservedGeneration == site.Generation {
		return ctrl.Result{}, nil
	}
	site.Status.ObservedGeneration = site.Generation
	return ctrl.Result{}, r.Status().Update(ctx, &site)
}
