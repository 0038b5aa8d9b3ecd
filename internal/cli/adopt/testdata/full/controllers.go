package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

func setup(mgr ctrl.Manager) error {
	events := make(chan event.GenericEvent)
	plain := &plainReconciler{Client: mgr.GetClient(), api: mgr.GetAPIReader()}
	err := ctrl.NewControllerManagedBy(mgr). // want `^ShardedController\+:`
							For(&corev1.ConfigMap{}).
							Owns(&appsv1.Deployment{}).
							Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(plain.mapped)).  // want `^Watches:`
							WatchesRawSource(source.Channel(events, &handler.EnqueueRequestForObject{})). // want `^RawSource:`
							WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
							Complete(plain)
	if err != nil {
		return err
	}

	b := builder.ControllerManagedBy(mgr).For(&corev1.Service{}) // want `^DutyController\+:`
	if events != nil {
		b = b.Owns(&corev1.Endpoints{})
	}
	b.Named("services")
	if err := b.Complete(reconcile.AsReconciler(mgr.GetClient(), &serviceReconciler{Client: mgr.GetClient()})); err != nil {
		return err
	}

	if err := ctrl.NewControllerManagedBy(mgr). // want `^DutyController\+:`
							Named("no-for").
							Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}). // want `^Watches:`
							Complete(plain); err != nil {
		return err
	}
	if err := builder.TypedControllerManagedBy[client.ObjectKey](mgr).Named("typed").Complete(nil); err != nil { // want `^ControllerByHand:`
		return err
	}
	if err := options(ctrl.NewControllerManagedBy(mgr)).For(&batchv1.CronJob{}).Complete(plain); err != nil { // want `^ControllerByHand:`
		return err
	}
	no := false
	_ = no
	if err := ctrl.NewControllerManagedBy(mgr). // want `^ControllerByHand:`
							For(&policyv1.PodDisruptionBudget{}).
							WithOptions(controller.Options{NeedLeaderElection: pointer(false)}).
							Complete(plain); err != nil {
		return err
	}
	if err := ctrl.NewControllerManagedBy(mgr). // want `^DutyController\+:`
							For(&networkingv1.Ingress{}).
							Owns(&networkingv1.Ingress{}).
							Complete(&ingressReconciler{Client: mgr.GetClient()}); err != nil {
		return err
	}
	_, err = controller.New("raw", mgr, controller.Options{Reconciler: plain}) // want `^ControllerByHand:`
	return err
}

func options(b *builder.Builder) *builder.Builder { return b }

func pointer[T any](v T) *T { return &v }

type plainReconciler struct {
	client.Client
	api client.Reader
}

func (r *plainReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if err := r.api.List(ctx, &corev1.ServiceList{}); err != nil { // asks the API server
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.children(ctx, req)
}

func (r *plainReconciler) children(ctx context.Context, req ctrl.Request) error {
	if err := r.List(ctx, &appsv1.DeploymentList{}, client.InNamespace(req.Namespace)); err != nil { // want `^ListOfOthers:`
		return err
	}
	return r.List(ctx, &corev1.NodeList{})
}

func (r *plainReconciler) mapped(ctx context.Context, _ client.Object) []ctrl.Request {
	if err := r.List(ctx, &corev1.PodList{}); err != nil {
		return nil
	}
	return nil
}

type serviceReconciler struct {
	client.Client
	seen map[string]bool
	// labels are only read.
	labels map[string]string
}

var last = map[string]string{}

func (r *serviceReconciler) Reconcile(ctx context.Context, service *corev1.Service) (ctrl.Result, error) {
	var all corev1.ServiceList
	if err := r.List(ctx, &all); err != nil { // want `^ListOfShare:`
		return ctrl.Result{}, err
	}
	last[service.Name] = r.labels["of"]                     // want `^Memory:`
	r.seen[service.Name] = true                             // want `^Memory:`
	go func() {}()                                          // want `^Goroutine:`
	return ctrl.Result{}, r.Update(context.TODO(), service) // want `^Context:`
}

type ingressReconciler struct{ client.Client }

func (r *ingressReconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	done := make(chan struct{})
	go close(done)
	<-done
	if err := r.List(ctx, &corev1.ConfigMapList{}, client.MatchingFields{"spec.of": "x"}); err != nil { // want `^ListByIndex:`
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.List(ctx, &corev1.ConfigMapList{}) // want `^ListOfOthers:`
}
