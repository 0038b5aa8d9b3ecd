package rota_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota"
)

// A test of a controller with client-go's fake clients. There is no API server, so New gets no config.
func ExampleOptions_solo() {
	client := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "password"}})
	r, err := rota.New(nil, rota.Options{Solo: true})
	check(err)
	factory := informers.NewSharedInformerFactory(client, 0)
	informer, err := rota.ShareInformer(r, factory, corev1.SchemeGroupVersion.WithKind("Secret"), &corev1.Secret{},
		client.CoreV1().Secrets(metav1.NamespaceAll))
	check(err)
	limiter := workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()
	queue, err := rota.NewQueue(r, "secrets", informer, workqueue.NewTypedRateLimitingQueue(limiter))
	check(err)
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(secret any) {
		queue.Add(cache.MetaObjectToName(secret.(*corev1.Secret)))
	}})
	check(err)
	ctx, stop := context.WithCancel(context.Background())
	sync := queue.Admit(func(_ context.Context, name cache.ObjectName) error {
		if ctx.Err() == nil { // a key may come again at any time
			fmt.Println("working on", name)
		}
		stop()
		return nil
	})
	check(r.Work(ctx, func(ctx context.Context) {
		factory.Start(ctx.Done())
		context.AfterFunc(ctx, queue.ShutDown)
		for {
			name, shutdown := queue.Get()
			if shutdown {
				return
			}
			_ = sync(ctx, name)
			queue.Done(name)
		}
	}))
	// Output: working on prod/password
}
