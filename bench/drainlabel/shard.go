package drainlabel

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ShardLabel is the label that says which shard an object belongs to.
func ShardLabel(ring string) string { return "shard.bench.rota.dev/" + ring }

// DrainLabel is the label that asks the shard to let an object go.
func DrainLabel(ring string) string { return "drain.bench.rota.dev/" + ring }

// Selector selects the objects of a shard, for its cache.
func Selector(ring, shard string) labels.Selector {
	return labels.SelectorFromSet(labels.Set{ShardLabel(ring): shard})
}

// Shard is a reconciler of main objects that reconciles those of one shard and lets go what is drained.
type Shard struct {
	Ring, Name string
	// Object is an example of the main objects.
	Object client.Object
	Client client.Client
	Do     reconcile.Reconciler
}

// Reconcile implements reconcile.Reconciler.
func (s *Shard) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	obj := s.Object.DeepCopyObject().(client.Object)
	if err := s.Client.Get(ctx, req.NamespacedName, obj); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	switch of := obj.GetLabels(); {
	case of[ShardLabel(s.Ring)] != s.Name:
		return reconcile.Result{}, nil
	case of[DrainLabel(s.Ring)] == "":
		return s.Do.Reconcile(ctx, req)
	}
	before := obj.DeepCopyObject().(client.Object)
	without(obj, s.Ring)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := s.Client.Patch(ctx, obj, patch); err != nil {
		return reconcile.Result{}, fmt.Errorf("let %s go: %w", req, err)
	}
	return reconcile.Result{}, nil
}

// without takes the ring's labels off an object.
func without(obj client.Object, ring string) {
	of := obj.GetLabels()
	delete(of, ShardLabel(ring))
	delete(of, DrainLabel(ring))
	obj.SetLabels(of)
}

// Drained is a predicate that has updates of drained objects pass, whatever else a controller ignores.
func Drained(ring string) predicate.Predicate {
	drained := func(obj client.Object) bool { return obj.GetLabels()[DrainLabel(ring)] != "" }
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return drained(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return drained(e.ObjectNew) },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
