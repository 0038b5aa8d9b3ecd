// The checksum controller. README.md compares its two forms, stock and sharded.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/rota-dev/rota"
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
	r := must(rota.New(cfg, rota.Options{Name: "checksum", Logger: klog.Background()}))
	client := must(kubernetes.NewForConfig(r.WrapConfig(cfg)))
	factory := informers.NewSharedInformerFactory(client, 0)
	limiter := workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()
	secrets := must(rota.ShareInformer(r, factory, corev1.SchemeGroupVersion.WithKind("Secret"), &corev1.Secret{},
		client.CoreV1().Secrets(metav1.NamespaceAll)))
	queue := must(rota.NewQueue(r, "checksum", secrets, workqueue.NewTypedRateLimitingQueue(limiter)))
	c := must(controller.New(client, factory.Core().V1().Secrets(), queue))
	c.Sync = queue.Admit(c.Sync)
	work := func(ctx context.Context) {
		factory.Start(ctx.Done())
		defer factory.Shutdown()
		c.Run(ctx, *workers)
	}
	check(r.Work(ctx, work))
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
