package habits

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/ctrlrt"
)

// Habit is an operator that survives sharding, and the people who use it.
type Habit struct {
	Name string
	// label is on all its objects. Objects of other habits are not its own.
	label string
	// foreign says that reconciles write objects besides their own on purpose.
	foreign bool
	// Build makes the operator's controllers in one process.
	Build func(*Process) error
	// Create makes item i at its first version; Change gives it a later one; Remove deletes it. They may leave objects to
	// the operator.
	Create, Remove func(u User, i int) error
	Change         func(u User, i, version int) error
	// Wrong says how the objects differ from what they should be, given the version of each item that there is. It is ""
	// if they do not.
	Wrong func(u User, items map[int]int) (string, error)
}

// All returns the habits.
func All() []Habit {
	all := []Habit{clusterScoped(), emptyNames(), finalizers(), unsetSelectors(), kinds(), polls(), batches(),
		expectations(), tracker(), zones()}
	for i := range all {
		all[i] = all[i].withDefaults()
	}
	return all
}

// withDefaults has users create, change and delete ConfigMaps.
func (h Habit) withDefaults() Habit {
	if h.Create == nil {
		h.Create = func(u User, i int) error { return u.Create(u.Context, newItem(u.Namespace, h.label, i)) }
	}
	if h.Change == nil {
		h.Change = changeItem
	}
	if h.Remove == nil {
		h.Remove = removeItem
	}
	return h
}

// User works in one namespace.
type User struct {
	context.Context
	client.Client
	Namespace string
}

// Process is one process of an operator.
type Process struct {
	*ctrlrt.Manager
	Namespace string
}

// kind says what a controller reconciles and what else it watches.
type kind struct {
	name, label string
	of          client.Object // ConfigMaps if nil
	owns        []client.Object
	// heard hears events of what the controller owns, before its owner is enqueued.
	heard predicate.Predicate
	// reset forgets what is remembered of an object.
	reset   func(context.Context, reconcile.Request)
	watches client.Object
	mapped  handler.MapFunc
}

// add makes a controller, as an operator's SetupWithManager does.
func (p *Process) add(k kind, r reconcile.Func) (controller.Controller, error) {
	mine := builder.WithPredicates(predicate.NewPredicateFuncs(func(obj client.Object) bool {
		return obj.GetLabels()[Label] == k.label
	}))
	heard := builder.WithPredicates(predicate.Funcs{})
	if k.heard != nil {
		heard = builder.WithPredicates(k.heard)
	}
	if k.of == nil {
		k.of = &corev1.ConfigMap{}
	}
	b := ctrlrt.NewControllerManagedBy(p.Manager).Named(k.name).For(k.of, mine)
	for _, child := range k.owns {
		b = b.Owns(child, heard)
	}
	if k.watches != nil {
		b = b.Watches(k.watches, handler.EnqueueRequestsFromMapFunc(k.mapped))
	}
	if k.reset != nil {
		b = b.OnReset(k.reset)
	}
	return b.Build(r)
}

// items makes a controller of ConfigMaps that does nothing about those that are gone.
func (p *Process) items(k kind, r Reconcile) (controller.Controller, error) {
	k.name = k.label
	return p.add(k, r.of(p.GetClient()))
}

// marks makes a controller of the Secrets with a label, which notes that it has seen them.
func (p *Process) marks(label string) error {
	_, err := p.add(kind{name: label, of: &corev1.Secret{}, label: label},
		func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			var secret corev1.Secret
			if err := p.GetClient().Get(ctx, r.NamespacedName, &secret); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			return reconcile.Result{}, Note(ctx, p.GetClient(), &secret, "seen", "yes")
		})
	return err
}
