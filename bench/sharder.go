package bench

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rota-dev/rota/bench/drainlabel"
	"github.com/rota-dev/rota/test/stage"
)

// sharder returns the manager of a sharder, and installs its webhook.
func (c *operatorConfig) sharder(ctx context.Context, cfg *rest.Config) (manager.Manager, error) {
	server, certificate, err := drainlabel.Server(c.Port)
	if err != nil {
		return nil, err
	}
	o := ctrl.Options{Scheme: stage.Scheme(), WebhookServer: server}
	o.Metrics.BindAddress = "0"
	o.Cache.ByObject = map[client.Object]cache.ByObject{
		&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{c.Namespace: {}}},
	}
	mgr, err := ctrl.NewManager(cfg, o)
	if err != nil {
		return nil, err
	}
	s := c.workload.sharder(c.Name, c.Namespace)
	if err := s.AddTo(mgr); err != nil {
		return nil, err
	}
	direct, err := client.New(cfg, client.Options{Scheme: stage.Scheme()})
	if err != nil {
		return nil, err
	}
	return mgr, s.Install(ctx, direct, c.Port, certificate)
}
