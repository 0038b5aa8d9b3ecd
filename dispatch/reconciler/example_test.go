package reconciler_test

import (
	"context"
	"log"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	dispatch "github.com/rota-dev/rota/dispatch/client"
	"github.com/rota-dev/rota/dispatch/reconciler"
)

func Example() {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		NewClient: func(cfg *rest.Config, o client.Options) (client.Client, error) {
			o.Cache = nil // read from the API server
			return client.New(cfg, o)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	keys, err := dispatch.New(dispatch.Options{
		URLs:      []string{"https://website-dispatch.operators.svc"},
		TokenFile: "/var/run/secrets/rota.dev/dispatch/token", CAFile: "/etc/rota/ca/ca.crt", Logger: mgr.GetLogger(),
	})
	if err != nil {
		log.Fatal(err)
	}
	worker := dispatch.Worker{Client: keys, Kinds: []string{"ConfigMap"}, Concurrency: 10}
	runnable, err := reconciler.New(worker, &greeter{mgr.GetClient()})
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Add(runnable); err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}

// greeter is any reconciler.
type greeter struct{ client.Client }

func (g *greeter) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var m corev1.ConfigMap
	if err := g.Get(ctx, req.NamespacedName, &m); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	m.Data = map[string]string{"greeting": "hello"}
	return reconcile.Result{}, g.Update(ctx, &m) // with the resourceVersion that was read
}
