// The notifier. README.md compares its two forms, stock and sharded.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/rota-dev/rota/examples/notify/controller"
)

func main() {
	klog.InitFlags(nil)
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig file (default: what a Pod has)")
	kindFlag := flag.String("kind", "Deployment.v1.apps", "what to watch, as KIND.VERSION.GROUP")
	url := flag.String("url", "", "where notifications are posted")
	after := flag.Duration("after", time.Minute, "how long an object must not be ready, or be ready again")
	workers := flag.Int("workers", 4, "objects that are worked on at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	kind := must(controller.ParseKind(*kindFlag))
	cfg := must(clientcmd.BuildConfigFromFlags("", *kubeconfig))
	cfg.QPS = -1 // the API server is fair by itself; the default is 5 requests per second
	client := must(kubernetes.NewForConfig(cfg))
	objects := must(dynamic.NewForConfig(cfg))
	informer := cache.NewSharedIndexInformer(kind.ListWatch(objects), kind.Example(), 0, cache.Indexers{})
	limiter := workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()
	queue := workqueue.NewTypedRateLimitingQueue(limiter)
	c := must(controller.New(client, informer, queue, *url))
	c.After = *after
	work := func(ctx context.Context) { c.Run(ctx, *workers) }
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: os.Getenv("POD_NAMESPACE"), Name: "notify"},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: os.Getenv("POD_NAME")},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: work,
			OnStoppedLeading: func() { klog.FlushAndExit(klog.ExitFlushTimeout, 0) },
		},
	})
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		klog.ErrorS(err, "The notifier ends")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}
