// The notifier. README.md compares its two forms, stock and sharded.
package main

import (
	"context"
	"flag"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/rota-dev/rota/examples/notify/config"
	"github.com/rota-dev/rota/examples/notify/controller"
	"github.com/rota-dev/rota/examples/notify/destination"
	"github.com/rota-dev/rota/examples/notify/digest"
)

// now is the clock of the digest. A test replaces it.
var now = time.Now

func main() {
	klog.InitFlags(nil)
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig file (default: what a Pod has)")
	file := flag.String("config", "notify.yaml", "path of the file that says what is told, and whom")
	listen := flag.String("listen", ":8080", "address of /metrics and /readyz")
	workers := flag.Int("workers", 4, "objects of one kind that are worked on at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	conf := must(config.Load(*file))
	cfg := must(clientcmd.BuildConfigFromFlags("", *kubeconfig))
	cfg.QPS = -1 // the API server is fair by itself; the default is 5 requests per second
	client := must(kubernetes.NewForConfig(cfg))
	objects := must(dynamic.NewForConfig(cfg))
	registry := prometheus.NewRegistry()
	destinations := destination.All(conf, registry)
	records := must(controller.OpenRecords(cfg, client, os.Getenv("POD_NAMESPACE"), conf.Name))
	registry.MustRegister(records)
	var controllers []*controller.Controller
	kinds := must(controller.Kinds(conf, client.Discovery()))
	for _, kind := range kinds {
		informer := cache.NewSharedIndexInformer(kind.ListWatch(objects), kind.Example(), 0, cache.Indexers{})
		limiter := workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()
		queue := workqueue.NewTypedRateLimitingQueue(limiter)
		c := must(controller.New(ctx, kind, informer, queue, objects, records, destinations))
		controllers = append(controllers, c)
	}
	ready := func(*http.Request) error { return nil }
	check(controller.Serve(ctx, *listen, registry, ready))
	work := func(ctx context.Context) { controller.Run(ctx, controllers, records, *workers) }
	if conf.Digest != nil {
		daily := digest.New(conf, kinds, objects, records, destinations, now)
		work = daily.Beside(work)
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: os.Getenv("POD_NAMESPACE"), Name: conf.Name},
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
