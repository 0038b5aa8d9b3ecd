package footprint

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/bench/meter"
	website "github.com/rota-dev/rota/examples/website/controller"
	"github.com/rota-dev/rota/test/process"
	"github.com/rota-dev/rota/test/stage"
)

const (
	operatorNamespace = "footprint"
	// Where latencies are measured the operators work side by side, each in a namespace of its own.
	stockNamespace = operatorNamespace + "-stock"
	rotaNamespace  = operatorNamespace + "-rota"
)

// EnvOperator is the environment variable that carries a replica's configuration.
const EnvOperator = "ROTA_FOOTPRINT_OPERATOR"

type operatorConfig struct {
	Form             Form
	Kubeconfig, Name string // Name is that of the rota and of the leader's Lease
	Pages            string // the folder of the published pages
	Watch            string // the namespace of the Websites; "": all
	Lease            time.Duration
	Stamp            bool // it stamps what it creates
}

// OperatorMain runs a replica: the Website operator, measured. It returns the exit status. It ends when its standard
// input does, so it ends too if the process that started it dies.
func OperatorMain() int {
	var c operatorConfig
	return process.Main(EnvOperator, "`make footprint`", &c, c.run)
}

func (c *operatorConfig) run(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1 // as controller-runtime sets it
	p := &probe{meter: meter.New(operatorNamespace), reconciles: &reconciles{first: map[string]time.Duration{}}}
	p.meter.Watch(cfg)
	go p.meter.Run(ctx)
	if p.manager, p.rota, err = c.manager(cfg); err != nil {
		return err
	}
	wrap := func(inner reconcile.Reconciler) reconcile.Reconciler {
		p.reconciles.inner = inner
		return p.reconciles
	}
	if err := stage.AddWebsites(ctx, p.manager, website.Pages{Dir: c.Pages}, wrap); err != nil {
		return err
	}
	process.Answer(0, func(question string) string {
		text, err := json.Marshal(p.answer(ctx, question))
		if err != nil {
			panic(err) // it has plain fields
		}
		return question + " " + string(text)
	})
	return p.manager.Start(ctx)
}

func (c *operatorConfig) manager(cfg *rest.Config) (manager.Manager, *rota.Rota, error) {
	var o ctrl.Options
	var namespaces []string
	if c.Watch != "" {
		o.Cache.DefaultNamespaces = map[string]cache.Config{c.Watch: {}}
		namespaces = []string{c.Watch}
	}
	if c.Stamp {
		o.NewClient = cluster.StampingClient
	}
	if c.Form == Stock {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, c.Name, operatorNamespace
	}
	return stage.NewManager(cfg, rota.Options{
		Name: c.Name, Delivery: c.Form.delivery(), LeaseDuration: c.Lease, LabelNamespaces: namespaces,
	}, o)
}
