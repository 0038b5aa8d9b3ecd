package rig

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	website "github.com/rota-dev/rota/examples/website/controller"
)

// Concurrency is how many objects a replica reconciles at a time.
const Concurrency = 8

// Scheme knows the kinds of Kubernetes and Websites.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(webv1.AddToScheme(scheme))
	return scheme
}

// NewManager returns a replica's manager, which serves metrics only where o says so: with Rota, or with leader election
// where o has it and the rota is nil.
func NewManager(cfg *rest.Config, ro rota.Options, o ctrl.Options) (manager.Manager, *rota.Rota, error) {
	o.Scheme = Scheme()
	if o.Metrics.BindAddress == "" {
		o.Metrics.BindAddress = "0"
	}
	if o.LeaderElection {
		mgr, err := ctrl.NewManager(cfg, o)
		return mgr, nil, err
	}
	ro.Logger = ctrl.Log
	r, err := rota.New(cfg, ro)
	if err != nil {
		return nil, nil, err
	}
	mgr, err := ctrlrt.NewManager(cfg, r, o)
	if err != nil {
		return nil, nil, err
	}
	return mgr, r, nil
}

// Websites is the controller of Websites, as examples/website has it in both its forms, with its reconciler. Events of
// Websites go to it that change the generation.
func Websites(mgr manager.Manager, pages website.Pages) (Controller, reconcile.Reconciler) {
	r := &website.WebsiteReconciler{
		Client: mgr.GetClient(), Recorder: mgr.GetEventRecorderFor("website-operator"), Pages: pages,
	}
	return Controller{
		For: &webv1.Website{}, Owns: []client.Object{&appsv1.Deployment{}, &corev1.Service{}, &corev1.ConfigMap{}},
		Events:  []predicate.Predicate{predicate.GenerationChangedPredicate{}},
		Watches: map[client.Object]handler.MapFunc{&corev1.Secret{}: r.SitesOf}, Index: website.Index, Workers: Concurrency,
	}, r
}

// Controller is one to add to a manager, by the builder that belongs to that.
type Controller struct {
	// For are its main objects, Owns those that they own. Watches are others, with the main objects that they concern.
	For     client.Object
	Owns    []client.Object
	Watches map[client.Object]handler.MapFunc
	// Index, if it is not nil, makes the indexes of the cache that Watches need.
	Index func(context.Context, client.FieldIndexer) error
	// Events are predicates of which one has to have an event of a main object pass; nil: all pass.
	Events []predicate.Predicate
	// Workers is how many objects it reconciles at a time.
	Workers int
	// Duty has one member do all of it, where the manager has a rota.
	Duty bool
}

// AddTo adds it with its reconciler.
func (c Controller) AddTo(ctx context.Context, mgr manager.Manager, r reconcile.Reconciler) error {
	if c.Index != nil {
		if err := c.Index(ctx, mgr.GetFieldIndexer()); err != nil {
			return err
		}
	}
	_, shared := mgr.(*ctrlrt.Manager)
	switch {
	case shared && c.Duty:
		return complete(ctrlrt.NewDutyControllerManagedBy(mgr), c, r)
	case shared:
		return complete(ctrlrt.NewControllerManagedBy(mgr), c, r)
	}
	return complete(ctrl.NewControllerManagedBy(mgr), c, r)
}

// controllerBuilder has the methods that builder.Builder and ctrlrt.Builder share.
type controllerBuilder[B any] interface {
	For(client.Object, ...builder.ForOption) B
	Owns(client.Object, ...builder.OwnsOption) B
	Watches(client.Object, handler.EventHandler, ...builder.WatchesOption) B
	WithOptions(controller.Options) B
	Complete(reconcile.Reconciler) error
}

func complete[B controllerBuilder[B]](b B, c Controller, r reconcile.Reconciler) error {
	var events []builder.ForOption
	if c.Events != nil {
		events = append(events, builder.WithPredicates(predicate.Or(c.Events...)))
	}
	b = b.For(c.For, events...)
	for _, kind := range c.Owns {
		b = b.Owns(kind)
	}
	for kind, to := range c.Watches {
		b = b.Watches(kind, handler.EnqueueRequestsFromMapFunc(to))
	}
	return b.WithOptions(controller.Options{MaxConcurrentReconciles: c.Workers}).Complete(r)
}
