// Package sources has raw sources.
package sources

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota/ctrlrt"
)

func setup(mgr *ctrlrt.Manager, far cluster.Cluster, given cache.Cache) error {
	events := make(chan event.GenericEvent)
	whole, err := mgr.Whole()
	if err != nil {
		return err
	}
	own := mgr.GetCache()
	return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Service{}). // want Adopted
										WatchesRawSource(source.Channel(events, &handler.EnqueueRequestForObject{})).                                                 // want RawSource?
										WatchesRawSource(source.Kind(own, &corev1.Service{}, &handler.TypedEnqueueRequestForObject[*corev1.Service]{})).              // want CacheInformer
										WatchesRawSource(source.Kind(own, &appsv1.Deployment{}, &handler.TypedEnqueueRequestForObject[*appsv1.Deployment]{})).        // want RawSource
										WatchesRawSource(source.Kind(whole.GetCache(), &corev1.Service{}, &handler.TypedEnqueueRequestForObject[*corev1.Service]{})). // want RawSource
										WatchesRawSource(source.Kind(far.GetCache(), &corev1.Service{}, &handler.TypedEnqueueRequestForObject[*corev1.Service]{})).   // want RawSource?
										WatchesRawSource(source.Kind(given, &corev1.Service{}, &handler.TypedEnqueueRequestForObject[*corev1.Service]{})).            // want RawSource?
										Complete(reconcile.Func(nil))
}
