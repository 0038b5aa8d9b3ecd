package drainlabel

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	// syncPeriod is the time between two lists of all objects.
	syncPeriod = 5 * time.Minute
	// concurrent is how many objects are moved at once.
	concurrent = 100
	// backoff is the time from a failed resync to the next, which doubles up to syncPeriod. With changes of objects under
	// way, some moves of each resync meet a conflict.
	backoff = 5 * time.Second
)

// Path is where the sharder's webhook is.
const Path = "/assign"

// Sharder assigns the objects of one ring to its shards.
type Sharder struct {
	// Ring is its name, Namespace that of the shards' Leases.
	Ring, Namespace string
	// Main is the kind of the controller's objects, Children those of the objects that these own.
	Main     schema.GroupVersionKind
	Children []schema.GroupVersionKind

	client client.Client
	direct client.Reader
}

// AddTo adds the sharder's controllers and its webhook to a manager. The manager's cache should hold Leases only.
func (s *Sharder) AddTo(mgr manager.Manager) error {
	s.client, s.direct = mgr.GetClient(), mgr.GetAPIReader()
	ours := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetLabels()[ringLabel] == s.Ring })
	err := builder.ControllerManagedBy(mgr).Named("shardlease").
		For(&coordinationv1.Lease{}, builder.WithPredicates(ours)).Complete(reconcile.Func(s.judge))
	if err != nil {
		return err
	}
	ring := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: s.Ring}}}
	})
	err = builder.ControllerManagedBy(mgr).Named("sharder").
		Watches(&coordinationv1.Lease{}, ring, builder.WithPredicates(ours, changes())).
		WithOptions(controller.Options{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](backoff, syncPeriod),
		}).
		Complete(reconcile.Func(s.resync))
	if err != nil {
		return err
	}
	mgr.GetWebhookServer().Register(Path, &admission.Webhook{Handler: admission.HandlerFunc(s.assign)})
	return nil
}

// changes has those events of Leases pass with which a shard comes or goes.
func changes() predicate.Predicate {
	available := func(obj client.Object) bool {
		l, ok := obj.(*coordinationv1.Lease)
		if !ok {
			return false
		}
		state, _ := stateOf(l, time.Now())
		return state.available()
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return available(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return available(e.ObjectOld) != available(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return e.DeleteStateUnknown || available(e.Object) },
	}
}

// judge keeps a Lease's state label, acquires it when its shard is silent, and deletes it in the end.
func (s *Sharder) judge(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	l := &coordinationv1.Lease{}
	if err := s.client.Get(ctx, req.NamespacedName, l); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	now := time.Now()
	state, next := stateOf(l, now)
	if l.Labels[stateLabel] != string(state) {
		before := l.DeepCopy()
		metav1.SetMetaDataLabel(&l.ObjectMeta, stateLabel, string(state))
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := s.client.Patch(ctx, l, patch); err != nil {
			return reconcile.Result{}, fmt.Errorf("label the lease of shard %s: %w", l.Name, err)
		}
	}
	switch state {
	default: // it is for the shard to renew, and for time to pass
	case orphaned:
		return reconcile.Result{}, client.IgnoreNotFound(s.client.Delete(ctx, l))
	case uncertain:
		at := metav1.NewMicroTime(now)
		l.Spec.HolderIdentity = ptr.To(holder)
		l.Spec.LeaseDurationSeconds = ptr.To(2 * int32(durationOf(l).Seconds()))
		l.Spec.AcquireTime, l.Spec.RenewTime = &at, &at
		l.Spec.LeaseTransitions = ptr.To(ptr.Deref(l.Spec.LeaseTransitions, 0) + 1)
		if err := s.client.Update(ctx, l); err != nil {
			return reconcile.Result{}, fmt.Errorf("acquire the lease of shard %s: %w", l.Name, err)
		}
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// leases returns the Leases of the ring's shards.
func (s *Sharder) leases(ctx context.Context) ([]coordinationv1.Lease, error) {
	var list coordinationv1.LeaseList
	err := s.client.List(ctx, &list, client.InNamespace(s.Namespace), client.MatchingLabels{ringLabel: s.Ring})
	return list.Items, err
}

// resync has all objects assigned to the shards that they belong to.
func (s *Sharder) resync(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	leases, err := s.leases(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	ring, available := shards(leases, time.Now())
	var errs []error
	for i, kind := range append([]schema.GroupVersionKind{s.Main}, s.Children...) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		cached := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
		if err := s.direct.List(ctx, list, cached); err != nil {
			errs = append(errs, fmt.Errorf("list %s: %w", kind.Kind, err))
			continue
		}
		failed := make([]error, len(list.Items))
		var moves errgroup.Group
		moves.SetLimit(concurrent)
		for j := range list.Items {
			obj := &list.Items[j]
			obj.SetGroupVersionKind(kind)
			moves.Go(func() error {
				failed[j] = s.move(ctx, obj, ring, available, i > 0)
				return nil
			})
		}
		_ = moves.Wait() // failed has all errors
		errs = append(errs, failed...)
	}
	return reconcile.Result{RequeueAfter: syncPeriod}, errors.Join(errs...)
}

// move asks the object's shard to let it go, or has the webhook assign it, if it is not where it belongs.
func (s *Sharder) move(
	ctx context.Context, obj *metav1.PartialObjectMetadata, ring Ring, available map[string]bool, child bool,
) error {
	key := s.key(obj, child)
	if key == "" {
		return nil
	}
	wanted, now := ring.Of(key), obj.Labels[ShardLabel(s.Ring)]
	if wanted == "" || wanted == now {
		return nil
	}
	before := obj.DeepCopy()
	if !child && available[now] {
		metav1.SetMetaDataLabel(&obj.ObjectMeta, DrainLabel(s.Ring), "true")
	} else {
		without(obj, s.Ring)
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := s.client.Patch(ctx, obj, patch); err != nil {
		return fmt.Errorf("move %s %s/%s: %w", obj.Kind, obj.Namespace, obj.Name, err)
	}
	return nil
}

// key is what an object is hashed by; "": it is nobody's.
func (s *Sharder) key(obj metav1.Object, child bool) string {
	name := obj.GetName()
	if child {
		owner := metav1.GetControllerOf(obj)
		if owner == nil || owner.Kind != s.Main.Kind {
			return ""
		}
		name = owner.Name
	}
	return s.Main.GroupVersion().String() + "/" + s.Main.Kind + "/" + obj.GetNamespace() + "/" + name
}

// assign is the webhook.
func (s *Sharder) assign(ctx context.Context, req admission.Request) admission.Response {
	var obj metav1.PartialObjectMetadata
	if err := decode(req.Object.Raw, &obj); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	key := s.key(&obj, req.Kind.Kind != s.Main.Kind)
	if obj.Labels[ShardLabel(s.Ring)] != "" || key == "" {
		return admission.Allowed("")
	}
	leases, err := s.leases(ctx)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	ring, _ := shards(leases, time.Now())
	shard := ring.Of(key)
	if shard == "" {
		return admission.Allowed("there is no shard")
	}
	return labelled(&obj, ShardLabel(s.Ring), shard)
}
