package bench

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/bench/drainlabel"
	"github.com/rota-dev/rota/test/rig"
)

// sharder returns the sharder of a ring.
func sharder(ring, namespace string) *drainlabel.Sharder {
	return &drainlabel.Sharder{Ring: ring, Namespace: namespace, Main: kinds[0], Children: kinds[1:]}
}

// sharderManager returns the manager of a sharder, and installs its webhook.
func (c *operatorConfig) sharderManager(ctx context.Context, cfg *rest.Config) (manager.Manager, error) {
	server, certificate, err := drainlabel.Server(c.Port)
	if err != nil {
		return nil, err
	}
	o := ctrl.Options{Scheme: rig.Scheme(), WebhookServer: server}
	o.Metrics.BindAddress = "0"
	o.Cache.ByObject = map[client.Object]cache.ByObject{
		&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{c.Namespace: {}}},
	}
	mgr, err := ctrl.NewManager(cfg, o)
	if err != nil {
		return nil, err
	}
	s := sharder(c.Name, c.Namespace)
	if err := s.AddTo(mgr); err != nil {
		return nil, err
	}
	direct, err := client.New(cfg, client.Options{Scheme: rig.Scheme()})
	if err != nil {
		return nil, err
	}
	return mgr, s.Install(ctx, direct, c.Port, certificate)
}

// shard runs under a sharder. The shard's Lease is a leader election Lease without other candidates.
func shard(_ context.Context, c *operatorConfig, cfg *rest.Config, o ctrl.Options) (built, error) {
	lock, err := drainlabel.Lock(cfg, c.Namespace, c.Name, c.Pod)
	if err != nil {
		return built{}, err
	}
	o.LeaderElection, o.LeaderElectionResourceLockInterface, o.LeaderElectionReleaseOnCancel = true, lock, true
	o.Cache.ByObject = map[client.Object]cache.ByObject{}
	for _, kind := range kinds {
		obj, err := rig.Scheme().New(kind)
		if err != nil {
			return built{}, err
		}
		o.Cache.ByObject[obj.(client.Object)] = cache.ByObject{Label: drainlabel.Selector(c.Name, c.Pod)}
	}
	mgr, _, err := rig.NewManager(cfg, rota.Options{}, o)
	if err != nil {
		return built{}, err
	}
	return built{Manager: mgr, add: func(ctx context.Context, of rig.Controller, r reconcile.Reconciler) error {
		of.Events = append(of.Events, drainlabel.Drained(c.Name))
		return of.AddTo(ctx, mgr,
			&drainlabel.Shard{Ring: c.Name, Name: c.Pod, Object: of.For, Client: mgr.GetClient(), Do: r})
	}}, nil
}
