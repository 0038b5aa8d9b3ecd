package footprint

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	website "github.com/rota-dev/rota/examples/website/controller"
)

// absent are the kinds of which the operator makes none.
var absent = map[string]bool{"deployments": true, "services": true}

// concurrency is how many Websites a replica reconciles at a time.
const concurrency = 8

// operator is the Website operator in one of its forms.
type operator struct {
	manager    manager.Manager
	rota       *rota.Rota // nil: Stock
	reconciles *reconciles
}

// operator makes one as examples/website does, in both its forms.
func (c *operatorConfig) operator(cfg *rest.Config, scheme *runtime.Scheme) (*operator, error) {
	o := ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}}
	var namespaces []string
	if c.Watch != "" {
		o.Cache.DefaultNamespaces = map[string]cache.Config{c.Watch: {}}
		namespaces = []string{c.Watch}
	}
	if c.Stamp {
		o.NewClient = stampingClient
	}
	op := &operator{reconciles: &reconciles{first: map[string]time.Duration{}}}
	with := controller.Options{MaxConcurrentReconciles: concurrency}
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	if c.Form == Stock {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, c.Name, operatorNamespace
		mgr, err := ctrl.NewManager(cfg, o)
		if err != nil {
			return nil, err
		}
		op.manager, op.reconciles.inner = mgr, c.reconciler(mgr)
		return op, ctrl.NewControllerManagedBy(mgr).For(&webv1.Website{}, changed).
			Owns(&appsv1.Deployment{}).Owns(&corev1.Service{}).Owns(&corev1.ConfigMap{}).
			WithOptions(with).Complete(op.reconciles)
	}
	r, err := rota.New(cfg, rota.Options{
		Name: c.Name, Delivery: c.Form.delivery(), LeaseDuration: c.Lease, Logger: ctrl.Log, LabelNamespaces: namespaces,
	})
	if err != nil {
		return nil, err
	}
	mgr, err := ctrlrt.NewManager(cfg, r, o)
	if err != nil {
		return nil, err
	}
	op.manager, op.rota, op.reconciles.inner = mgr, r, c.reconciler(mgr)
	return op, ctrlrt.NewControllerManagedBy(mgr).For(&webv1.Website{}, changed).
		Owns(&appsv1.Deployment{}).Owns(&corev1.Service{}).Owns(&corev1.ConfigMap{}).
		WithOptions(with).Complete(op.reconciles)
}

func (c *operatorConfig) reconciler(mgr manager.Manager) *website.WebsiteReconciler {
	return &website.WebsiteReconciler{
		Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("website-operator"), Pages: website.Pages{Dir: c.Pages},
	}
}
