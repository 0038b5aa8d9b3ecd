package footprint

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	website "github.com/rota-dev/rota/examples/website/controller"
)

// concurrency is how many Websites a replica reconciles at a time.
const concurrency = 8

// operator is the Website operator in one of its forms.
type operator struct {
	manager    manager.Manager
	rota       *rota.Rota // nil: Stock
	reconciles *reconciles
}

// operator makes one as examples/website does, in both its forms.
func (c *operatorConfig) operator(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme) (*operator, error) {
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
		op.manager = mgr
		sitesOf, err := op.reconciler(ctx, website.Pages{Dir: c.Pages})
		if err != nil {
			return nil, err
		}
		return op, ctrl.NewControllerManagedBy(mgr).For(&webv1.Website{}, changed).
			Owns(&appsv1.Deployment{}).Owns(&corev1.Service{}).Owns(&corev1.ConfigMap{}).Watches(&corev1.Secret{}, sitesOf).
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
	op.manager, op.rota = mgr, r
	sitesOf, err := op.reconciler(ctx, website.Pages{Dir: c.Pages})
	if err != nil {
		return nil, err
	}
	return op, ctrlrt.NewControllerManagedBy(mgr).For(&webv1.Website{}, changed).
		Owns(&appsv1.Deployment{}).Owns(&corev1.Service{}).Owns(&corev1.ConfigMap{}).Watches(&corev1.Secret{}, sitesOf).
		WithOptions(with).Complete(op.reconciles)
}

// reconciler makes the reconciler, and returns what maps Secrets to Websites.
func (op *operator) reconciler(ctx context.Context, pages website.Pages) (handler.EventHandler, error) {
	r := &website.WebsiteReconciler{Client: op.manager.GetClient(), Recorder: op.manager.GetEventRecorder("website-operator"), Pages: pages}
	op.reconciles.inner = r
	return handler.EnqueueRequestsFromMapFunc(r.SitesOf), website.Index(ctx, op.manager.GetFieldIndexer())
}
