// The notifier. README.md compares its two forms, stock and sharded.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/rota-dev/rota"
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
	options := rota.Options{Logger: klog.Background()}
	options.BindFlags(flag.CommandLine)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	conf := must(config.Load(*file))
	cfg := must(clientcmd.BuildConfigFromFlags("", *kubeconfig))
	cfg.QPS = -1 // the API server is fair by itself; the default is 5 requests per second
	options.Name = conf.Name
	r := must(rota.New(cfg, options))
	client := must(kubernetes.NewForConfig(r.WrapConfig(cfg)))
	objects := must(dynamic.NewForConfig(r.WrapConfig(cfg)))
	registry := prometheus.NewRegistry()
	destinations := destination.All(conf, registry)
	records := must(controller.OpenRecords(cfg, client, os.Getenv("POD_NAMESPACE"), conf.Name))
	registry.MustRegister(records, r.Collector())
	var controllers []*controller.Controller
	kinds := must(controller.Kinds(conf, client.Discovery()))
	for _, kind := range kinds {
		informer := r.NewInformer(kind.GroupKind(), kind.ListWatch(objects), kind.Example(), 0, cache.Indexers{})
		limiter := workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()
		queue := must(rota.NewQueue(r, kind.String(), informer, workqueue.NewTypedRateLimitingQueue(limiter)))
		c := must(controller.New(ctx, kind, informer, queue, objects, records, destinations))
		c.Sync = queue.Admit(c.Sync)
		queue.OnReset(c.Forget)
		controllers = append(controllers, c)
	}
	check(controller.Serve(ctx, *listen, registry, r.Ready))
	work := func(ctx context.Context) { controller.Run(ctx, controllers, records, *workers) }
	if conf.Digest != nil {
		daily := digest.New(conf, kinds, objects, records, destinations, now)
		check(r.Duty("digest", daily.Run))
	}
	check(r.Work(ctx, work))
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
