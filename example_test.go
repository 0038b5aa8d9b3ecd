package rota_test

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota"
)

// A controller of plain client-go; examples/checksum is a whole one.
func Example() {
	cfg, err := rest.InClusterConfig()
	check(err)
	r, err := rota.New(cfg, rota.Options{Name: "checksum"}) // no I/O yet
	check(err)
	client, err := kubernetes.NewForConfig(r.WrapConfig(cfg)) // writes end before the slot moves on
	check(err)
	factory := informers.NewSharedInformerFactory(client, 0)
	informer, err := rota.ShareInformer(r, factory, corev1.SchemeGroupVersion.WithKind("Secret"), &corev1.Secret{},
		client.CoreV1().Secrets(metav1.NamespaceAll)) // holds this member's share, as do the factory's listers
	check(err)
	limiter := workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()
	queue, err := rota.NewQueue(r, "checksum", informer, workqueue.NewTypedRateLimitingQueue(limiter))
	check(err)
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(secret any) {
		queue.Add(cache.MetaObjectToName(secret.(*corev1.Secret)))
	}})
	check(err)
	sync := queue.Admit(func(_ context.Context, name cache.ObjectName) error {
		log.Println("working on", name)
		return nil
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	check(r.Work(ctx, func(ctx context.Context) { // joins; when the first ctx ends it leaves, and then ends this one
		factory.Start(ctx.Done())
		context.AfterFunc(ctx, queue.ShutDown)
		for {
			name, shutdown := queue.Get()
			if shutdown {
				return
			}
			if err := sync(ctx, name); err != nil {
				queue.AddRateLimited(name)
			} else {
				queue.Forget(name)
			}
			queue.Done(name)
		}
	}))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Traces of handovers go to the program's own provider. docs/operations.md shows one for OTLP.
func ExampleOptions_traces() {
	var provider trace.TracerProvider // in a program: that of go.opentelemetry.io/otel/sdk/trace
	cfg, err := rest.InClusterConfig()
	check(err)
	r, err := rota.New(cfg, rota.Options{Name: "checksum", TracerProvider: provider})
	check(err)
	log.Println("handovers of", r.Name(), "are traced")
}
