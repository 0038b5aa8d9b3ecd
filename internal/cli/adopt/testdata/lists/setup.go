// Package lists lists in many ways.
package lists

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func setup(mgr ctrl.Manager, unknown schema.GroupVersionKind) {
	c := mgr.GetClient()
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{}).Complete(&ofInterface{lister: c}) // want `^DutyController:`

	secrets := &generic[*corev1.Secret, *corev1.SecretList]{Client: c}
	_ = ctrl.NewControllerManagedBy(mgr).For(secrets.object()).Complete(secrets) // want `^DutyController:`
	maps := &generic[*corev1.ConfigMap, *corev1.NodeList]{Client: c}
	_ = ctrl.NewControllerManagedBy(mgr).For(maps.object()).Complete(maps) // want `^ShardedController:`

	pod := &unstructured.Unstructured{}
	pod.SetGroupVersionKind(podKind)
	_ = ctrl.NewControllerManagedBy(mgr).For(pod).Complete(&byName{c})                      // want `^DutyController:`
	_ = ctrl.NewControllerManagedBy(mgr).For(&batchv1.Job{}).Complete(&unnamed{c, unknown}) // want `^DutyController:`
	hidden := &unstructured.Unstructured{}
	hidden.SetGroupVersionKind(unknown)
	_ = ctrl.NewControllerManagedBy(mgr).For(hidden).Named("hidden").Complete(&nodes{c}) // want `^DutyController:`

	// Both list by one helper: one of them its own kind, the other what it owns.
	_ = ctrl.NewControllerManagedBy(mgr).For(&appsv1.Deployment{}).Complete(&helped{c}) // want `^DutyController:`
	_ = ctrl.NewControllerManagedBy(mgr).For(&autoscalingv1.HorizontalPodAutoscaler{}). // want `^ShardedController:`
												Owns(&policyv1.PodDisruptionBudget{}).
												Complete(&parent{c})
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Endpoints{}).Complete(&live{c, mgr.GetAPIReader()}) // want `^DutyController:`
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Event{}).Complete(&sometimesLive{c, pick(mgr)})     // want `^DutyController:`
	_ = ctrl.NewControllerManagedBy(mgr).For(&networkingv1.Ingress{}).Complete(&shares{c})               // want `^DutyController:`
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Namespace{}).Complete(&bound{c})                    // want `^DutyController:`
}

// bound lists through a variable that holds the method.
type bound struct{ client.Client }

func (r *bound) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	list := r.List
	return ctrl.Result{}, list(ctx, &corev1.NamespaceList{}) // want `^ListOfShare:`
}

// lister is an interface of its own.
type lister interface {
	List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error
}

type ofInterface struct{ lister lister }

func (r *ofInterface) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, r.lister.List(ctx, &corev1.ServiceList{}) // want `^ListOfShare:`
}

type generic[T client.Object, L client.ObjectList] struct {
	client.Client
	object func() T
	list   func() L
}

func (r *generic[T, L]) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	all := r.list()
	return ctrl.Result{}, r.List(ctx, all) // want `^ListOfShare:`
}

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

type byName struct{ client.Client }

func (r *byName) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	nodes := &unstructured.UnstructuredList{}
	nodes.SetGroupVersionKind(schema.GroupVersion{Version: "v1"}.WithKind("NodeList"))
	if err := r.List(ctx, nodes); err != nil { // want `^ListOfUnknown:`
		return ctrl.Result{}, err
	}
	pods := &unstructured.UnstructuredList{}
	pods.SetGroupVersionKind(podKind)
	return ctrl.Result{}, r.List(ctx, pods) // want `^ListOfUnknown:`
}

type unnamed struct {
	client.Client
	kind schema.GroupVersionKind
}

func (r *unnamed) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(r.kind)
	return ctrl.Result{}, r.List(ctx, all) // want `^ListOfUnknown:`
}

type nodes struct{ client.Client }

func (r *nodes) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, r.List(ctx, &corev1.NodeList{}) // want `^ListOfUnknown:`
}

// all is where both list, and each caller says what.
func all(ctx context.Context, c client.Reader, list client.ObjectList) error {
	return c.List(ctx, list)
}

type helped struct{ client.Client }

func (r *helped) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, all(ctx, r, &appsv1.DeploymentList{}) // want `^ListOfShare:`
}

type parent struct{ client.Client }

func (r *parent) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, all(ctx, r, &policyv1.PodDisruptionBudgetList{})
}

type shares struct{ client.Client }

// Reconcile lists the kind of a controller that became a duty, which is nothing; and of one that is sharded.
func (r *shares) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if err := r.List(ctx, &corev1.ServiceList{}, client.MatchingFields{"spec.of": "x"}); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.List(ctx, &corev1.ConfigMapList{}, client.MatchingFields{"spec.of": "x"}) // want `^ListByIndex:`
}

// live asks the API server, also by the helper that others use with their caches.
type live struct {
	client.Client
	api client.Reader
}

func (r *live) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if err := all(ctx, r.api, &corev1.EndpointsList{}); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.List(ctx, &corev1.ConfigMapList{}, &client.ListOptions{FieldSelector: nil}) // want `^ListByIndex:`
}

type sometimesLive struct {
	client.Client
	reader client.Reader
}

func pick(mgr ctrl.Manager) client.Reader {
	if mgr.GetCache() == nil {
		return mgr.GetAPIReader()
	}
	return mgr.GetClient()
}

func (r *sometimesLive) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, r.reader.List(ctx, &corev1.EventList{}) // want `^ListOfShare:`
}
