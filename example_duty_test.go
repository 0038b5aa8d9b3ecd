package rota_test

import (
	"context"
	"log"
	"os/signal"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota"
)

// A controller of plain client-go that cannot be sharded. One member at a time runs it, with a queue and handlers of
// its own, so that each object is reconciled when the duty comes to a member. The informer runs on every member.
func ExampleRota_Duty() {
	cfg, err := rest.InClusterConfig()
	check(err)
	r, err := rota.New(cfg, rota.Options{Name: "quota"})
	check(err)
	client, err := kubernetes.NewForConfig(r.WrapConfig(cfg))
	check(err)
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	informer := r.NewInformer(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), &cache.ListWatch{ // holds all Pods
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: pods.Watch,
	}, &corev1.Pod{}, 0, nil)
	check(r.Duty("quota", func(ctx context.Context) error {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
		context.AfterFunc(ctx, queue.ShutDown)
		added, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(pod any) {
			queue.Add(cache.MetaObjectToName(pod.(*corev1.Pod)))
		}})
		if err != nil {
			return err // it is tried again
		}
		defer func() { _ = informer.RemoveEventHandler(added) }()
		for {
			name, shutdown := queue.Get()
			if shutdown {
				return nil // the duty may move on
			}
			log.Println("working on", name)
			queue.Done(name)
		}
	}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	inner, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(inner) })
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) // before this member takes duties
	check(r.Run(ctx))                                      // when ctx ends it leaves, while the informer still runs
	end()
	running.Wait()
}
