package bench

import (
	"context"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/rig"
)

// Strategy is a way to run an operator on several replicas.
type Strategy struct {
	// Name is for flags and results, Title for tables. About describes it.
	Name, Title, About string
	// Leads is set if one replica works at a time. Static is set if the number of replicas is in each one's
	// configuration: all are restarted when it changes, and the others do not do the work of one that is gone. Labels is
	// set if a sharder labels the objects.
	Leads, Static, Labels bool

	// build makes a replica's manager.
	build func(ctx context.Context, c *operatorConfig, cfg *rest.Config, o ctrl.Options) (built, error)
}

// built is a replica's manager, with what the strategy adds.
type built struct {
	manager.Manager
	// status returns the member's status. It is nil if the replica is not a member.
	status func() rota.Status
	// add adds the operator's controller; nil: as any controller is added to the manager.
	add func(context.Context, rig.Controller, reconcile.Reconciler) error
}

// Strategies are all of them, in the order of tables.
func Strategies() []Strategy {
	return []Strategy{
		{
			Name: "leader", Title: "leader election", Leads: true, build: lead(false),
			About: "controller-runtime's leader election with its default times (a lease of 15 s) and a Lease that is " +
				"released when the leader stops. The others wait, with empty caches.",
		},
		{
			Name: "leader-warm", Title: "leader election, warm", Leads: true, build: lead(true),
			About: "The same with `EnableWarmup`: the others keep their caches and queues filled.",
		},
		{
			Name: "modulo", Title: "hash modulo", Static: true, build: modulo,
			About: "Every replica caches all objects and reconciles those whose hash, modulo the number of replicas, is its " +
				"number. Both numbers are flags of a StatefulSet's Pods.",
		},
		{
			Name: "drain-label", Title: "drain label", Labels: true, build: shard,
			About: "A sharder labels each object, and each of its children, with its replica's name, and replicas cache " +
				"the objects with their label: the protocol of kubernetes-controller-sharding, written anew (bench/drainlabel), " +
				"with one sharder.",
		},
		{
			Name: "filter", Title: "Rota, Filter", build: member(sharding.Filter),
			About: "Rota, whose members watch all objects and cache their own. It needs nothing on objects.",
		},
		{
			Name: "slot-label", Title: "Rota, SlotLabel", build: member(sharding.SlotLabel),
			About: "Rota, whose members watch by a label with the object's hash. The objects have the label before the run.",
		},
		{
			Name: "dispatch", Title: "Rota, dispatchers", build: dispatch,
			About: "Each replica is a dispatcher of Rota, which watches metadata and caches nothing, with a worker beside it " +
				"that takes keys from it and reads from the API server. Traffic between the two is not counted.",
		},
	}
}

// ParseStrategies returns those of the names, which commas separate.
func ParseStrategies(names string) (out []Strategy, err error) {
	for name := range strings.SplitSeq(names, ",") {
		s, ok := find(name)
		if !ok {
			var all []string
			for _, s := range Strategies() {
				all = append(all, s.Name)
			}
			return nil, fmt.Errorf("strategy %q: must be one of %s", name, strings.Join(all, ", "))
		}
		out = append(out, s)
	}
	return out, nil
}

func find(name string) (Strategy, bool) {
	for _, s := range Strategies() {
		if s.Name == name {
			return s, true
		}
	}
	return Strategy{}, false
}

type builder = func(context.Context, *operatorConfig, *rest.Config, ctrl.Options) (built, error)

// lead runs for the leader's Lease.
func lead(warm bool) builder {
	return func(_ context.Context, c *operatorConfig, cfg *rest.Config, o ctrl.Options) (built, error) {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, c.Name, c.Namespace
		o.LeaderElectionReleaseOnCancel, o.Controller.EnableWarmup = true, &warm
		mgr, _, err := rig.NewManager(cfg, rota.Options{}, o)
		return built{Manager: mgr}, err
	}
}

// modulo reconciles what is due to the replica's number.
func modulo(_ context.Context, c *operatorConfig, cfg *rest.Config, o ctrl.Options) (built, error) {
	o.Scheme, o.Metrics.BindAddress = rig.Scheme(), "0"
	mgr, err := ctrl.NewManager(cfg, o)
	return built{Manager: mgr, add: func(ctx context.Context, of rig.Controller, inner reconcile.Reconciler) error {
		return of.AddTo(ctx, mgr, reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			if xxhash.Sum64String(req.String())%uint64(c.Of) != uint64(c.Number) {
				return reconcile.Result{}, nil
			}
			return inner.Reconcile(ctx, req)
		}))
	}}, err
}

// member is a member of a rota.
func member(mode sharding.Mode) builder {
	return func(_ context.Context, c *operatorConfig, cfg *rest.Config, o ctrl.Options) (built, error) {
		mgr, r, err := rig.NewManager(cfg, rota.Options{Name: c.Name, Delivery: mode}, o)
		if err != nil {
			return built{}, err
		}
		return built{Manager: mgr, status: r.Status}, nil
	}
}
