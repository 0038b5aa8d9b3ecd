package bench

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/bench/drainlabel"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/stage"
)

// Strategy is a way to run an operator on several replicas.
type Strategy struct {
	// Name is for flags and results, Title for tables. About says what it is.
	Name, Title, About string
	// Leads says that one replica works at a time, Static that the number of replicas is in each one's configuration, so
	// that all are restarted when it changes, and that nobody does the work of one that is gone. Labels says that a
	// sharder labels the objects.
	Leads, Static, Labels bool
	// Polls says that nobody watches: a change waits until somebody looks for it.
	Polls bool

	manager func(ctx context.Context, c *operatorConfig, cfg *rest.Config, o ctrl.Options) (built, error)
}

// built is a replica's manager, with what is its strategy's.
type built struct {
	manager.Manager
	// status is that of the member; nil: it is none.
	status func() rota.Status
	// add adds the operator's controller; nil: as any controller is added to the manager.
	add func(context.Context, stage.Controller, reconcile.Reconciler) error
}

// Strategies are all that there are, in the order of tables.
func Strategies() []Strategy {
	return []Strategy{
		{
			Name: "leader", Title: "leader election", Leads: true,
			About: "controller-runtime's leader election with its default times (a lease of 15 s) and a Lease that is " +
				"released when the leader stops. The others wait, with empty caches.",
			manager: func(_ context.Context, c *operatorConfig, cfg *rest.Config, o ctrl.Options) (built, error) {
				return lead(c, cfg, o, false)
			},
		},
		{
			Name: "leader-warm", Title: "leader election, warm", Leads: true,
			About: "The same with `EnableWarmup`: the others keep their caches and queues filled.",
			manager: func(_ context.Context, c *operatorConfig, cfg *rest.Config, o ctrl.Options) (built, error) {
				return lead(c, cfg, o, true)
			},
		},
		{
			Name: "modulo", Title: "hash modulo", Static: true,
			About: "Every replica caches all objects and reconciles those whose hash, modulo the number of replicas, is its " +
				"own number. Both numbers are flags of a StatefulSet's Pods.",
			manager: modulo,
		},
		{
			Name: "drain-label", Title: "drain label", Labels: true,
			About: "A sharder labels each object, and each of its children, with its replica's name, and replicas cache " +
				"what has their label: the protocol of kubernetes-controller-sharding, written anew (bench/drainlabel), with one " +
				"sharder.",
			manager: shard,
		},
		delivered("filter", sharding.Filter,
			"Rota, whose members watch all objects and cache their own. It needs nothing on objects."),
		delivered("slot-label", sharding.SlotLabel,
			"Rota, whose members watch by a label with the object's hash. The objects had it when the run began."),
		delivered("shard-selector", sharding.ShardSelector,
			"Rota, whose members have the API server select by hash (an alpha gate in Kubernetes 1.36)."),
		{
			Name: "dispatch", Title: "Rota, dispatchers",
			About: "Each replica is a dispatcher of Rota, which watches metadata and caches nothing, with a worker beside it " +
				"that takes keys from it and reads from the API server. What goes between the two is not counted.",
			manager: dispatch,
		},
		{
			Name: "duties", Title: "Rota, duties",
			About: "Rota, whose members divide controllers and not objects: each controller works on one member, which " +
				"caches all of its objects.",
			manager: duties,
		},
		{
			Name: "poll", Title: "polling", Leads: true, Polls: true,
			About: fmt.Sprintf("Leader election, and no watches: the leader lists the main objects, reconciles each, waits "+
				"for %v, and does so again. It reads from the API server.", pollPeriod),
			manager: poll,
		},
	}
}

// ParseStrategies returns those of the names, which commas separate.
func ParseStrategies(names string) (out []Strategy, err error) {
	for _, name := range strings.Split(names, ",") {
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

// lead runs for the leader's Lease.
func lead(c *operatorConfig, cfg *rest.Config, o ctrl.Options, warm bool) (built, error) {
	o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, c.Name, c.Namespace
	o.LeaderElectionReleaseOnCancel = true
	if warm {
		o.Controller.EnableWarmup = ptr.To(true)
	}
	mgr, _, err := stage.NewManager(cfg, rota.Options{}, o)
	return built{Manager: mgr}, err
}

// shard runs under a sharder. The shard's Lease is one of leader election that nobody else wants.
func shard(_ context.Context, c *operatorConfig, cfg *rest.Config, o ctrl.Options) (built, error) {
	lock, err := drainlabel.Lock(cfg, c.Namespace, c.Name, c.Pod)
	if err != nil {
		return built{}, err
	}
	o.LeaderElection, o.LeaderElectionResourceLockInterface, o.LeaderElectionReleaseOnCancel = true, lock, true
	o.Cache.ByObject = selected(c.workload, drainlabel.Selector(c.Name, c.Pod))
	mgr, _, err := stage.NewManager(cfg, rota.Options{}, o)
	if err != nil {
		return built{}, err
	}
	return built{Manager: mgr, add: func(ctx context.Context, of stage.Controller, r reconcile.Reconciler) error {
		if of.Events != nil {
			of.Events = append(of.Events, drainlabel.Drained(c.Name))
		}
		return of.AddTo(ctx, mgr,
			&drainlabel.Shard{Ring: c.Name, Name: c.Pod, Object: of.For, Client: mgr.GetClient(), Do: r})
	}}, nil
}

func selected(w workload, by labels.Selector) map[client.Object]cache.ByObject {
	out := map[client.Object]cache.ByObject{}
	for _, obj := range w.kinds() {
		out[obj] = cache.ByObject{Label: by}
	}
	return out
}

// duties is Rota with controllers that are not sharded.
func duties(_ context.Context, c *operatorConfig, cfg *rest.Config, o ctrl.Options) (built, error) {
	b, err := member(cfg, rota.Options{Name: c.Name}, o)
	b.add = func(ctx context.Context, of stage.Controller, r reconcile.Reconciler) error {
		of.Duty = true
		return of.AddTo(ctx, b.Manager, r)
	}
	return b, err
}

// member is a member of a rota.
func member(cfg *rest.Config, ro rota.Options, o ctrl.Options) (built, error) {
	mgr, r, err := stage.NewManager(cfg, ro, o)
	if err != nil {
		return built{}, err
	}
	return built{Manager: mgr, status: r.Status}, nil
}

// delivered is Rota with a delivery.
func delivered(name string, mode sharding.Mode, about string) Strategy {
	return Strategy{Name: name, Title: "Rota, " + mode.String(), About: about,
		manager: func(_ context.Context, c *operatorConfig, cfg *rest.Config, o ctrl.Options) (built, error) {
			return member(cfg, rota.Options{Name: c.Name, Delivery: mode}, o)
		}}
}
