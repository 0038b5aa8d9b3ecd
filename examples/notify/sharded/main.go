// The notifier. README.md compares its two forms, stock and sharded.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/examples/notify/controller"
)

func main() {
	klog.InitFlags(nil)
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig file (default: what a Pod has)")
	kindFlag := flag.String("kind", "Deployment.v1.apps", "what to watch, as KIND.VERSION.GROUP")
	url := flag.String("url", "", "where notifications are posted")
	after := flag.Duration("after", time.Minute, "how long an object must not be ready, or be ready again")
	workers := flag.Int("workers", 4, "objects that are worked on at once")
	options := rota.Options{Name: "notify", Logger: klog.Background()}
	options.BindFlags(flag.CommandLine)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	kind := must(controller.ParseKind(*kindFlag))
	cfg := must(clientcmd.BuildConfigFromFlags("", *kubeconfig))
	cfg.QPS = -1 // the API server is fair by itself; the default is 5 requests per second
	r := must(rota.New(cfg, options))
	client := must(kubernetes.NewForConfig(r.WrapConfig(cfg)))
	objects := must(dynamic.NewForConfig(r.WrapConfig(cfg)))
	informer := r.NewInformer(kind.GroupKind(), kind.ListWatch(objects), kind.Example(), 0, cache.Indexers{})
	limiter := workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()
	queue := must(rota.NewQueue(r, "notify", informer, workqueue.NewTypedRateLimitingQueue(limiter)))
	c := must(controller.New(client, informer, queue, *url))
	c.After = *after
	c.Sync, c.Epoch = queue.Admit(c.Sync), rota.EpochFrom
	work := func(ctx context.Context) { c.Run(ctx, *workers) }
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
