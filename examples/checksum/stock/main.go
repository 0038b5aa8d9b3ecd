// The checksum controller. README.md compares its two forms, stock and sharded.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/rota-dev/rota/examples/checksum/controller"
)

func main() {
	klog.InitFlags(nil)
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig file (default: what a Pod has)")
	workers := flag.Int("workers", 2, "Secrets that are worked on at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	cfg := must(clientcmd.BuildConfigFromFlags("", *kubeconfig))
	cfg.QPS = -1 // the API server limits clients itself; the default is 5 requests per second
	client := must(kubernetes.NewForConfig(cfg))
	factory := informers.NewSharedInformerFactory(client, 0)
	limiter := workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()
	queue := workqueue.NewTypedRateLimitingQueue(limiter)
	c := must(controller.New(client, factory.Core().V1().Secrets(), queue))
	work := func(ctx context.Context) {
		factory.Start(ctx.Done())
		defer factory.Shutdown()
		c.Run(ctx, *workers)
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: os.Getenv("POD_NAMESPACE"), Name: "checksum"},
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
		klog.ErrorS(err, "The controller ends")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}
