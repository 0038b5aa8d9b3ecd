package dispatch

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/dispatch/client"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	website "github.com/rota-dev/rota/examples/website/controller"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/app"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/process"
)

// Argument makes the program a process of the demo, and Env is the environment variable with its configuration.
const (
	Argument = "demo-dispatch"
	Env      = "ROTA_DEMO_DISPATCH"
)

// part is what a process of the demo is to be.
type part struct {
	// Config is a dispatcher's; empty: it is a worker.
	Config     string
	Kubeconfig string
	Verbose    bool
	Worker     workerPart
}

// workerPart is a worker's configuration, also of those in Python.
type workerPart struct {
	Name        string   `json:"name"`
	URLs        []string `json:"urls"`
	TokenFile   string   `json:"tokenFile"`
	CAFile      string   `json:"caFile"`
	Kind        string   `json:"kind"`
	Concurrency int      `json:"concurrency"`
	Length      float64  `json:"length"` // in seconds
	Pause       float64  `json:"pause"`  // in seconds
	Journal     string   `json:"journal"`
	Pages       string   `json:"pages"`
	// Server, APIToken and APICA are for workers in Python, which read no kubeconfig.
	Server   string `json:"server"`
	APIToken string `json:"apiToken"`
	APICA    string `json:"apiCA"`
}

// Main is a dispatcher or a worker. It returns the exit status. It ends when its standard input does, so also when the
// demo dies.
func Main() int {
	var p part
	process.EndWithInput(3)
	return process.Main(Env, "`rota-demo --dispatch`", &p, func(ctx context.Context) error {
		if p.Config != "" {
			return p.dispatch(ctx)
		}
		return p.work(ctx)
	}, func(o *zap.Options) { o.Development = p.Verbose })
}

// dispatch does what `rota dispatch --config` does.
func (p *part) dispatch(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1
	c, err := app.Load(p.Config)
	if err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return fmt.Errorf("%s: %w", p.Config, err)
	}
	d, err := app.New(ctx, cfg, c, rota.Identity{}, ctrl.Log)
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

// work takes keys until ctx ends.
func (p *part) work(ctx context.Context) error {
	w := &p.Worker
	cfg, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1
	live, err := ctrlclient.New(cfg, ctrlclient.Options{Scheme: rig.Scheme()})
	if err != nil {
		return err
	}
	j, err := journal.Create(w.Journal)
	if err != nil {
		return err
	}
	defer func() { _ = j.Close() }() // each record was written when it was made
	dispatchers, err := client.New(client.Options{
		URLs: w.URLs, TokenFile: w.TokenFile, CAFile: w.CAFile, Logger: ctrl.Log,
	})
	if err != nil {
		return err
	}
	r := &reconciler{workerPart: w, client: live, journal: j}
	return client.Run(ctx, client.Worker{
		Client: dispatchers, Name: w.Name, Kinds: []string{w.Kind}, Concurrency: w.Concurrency,
		Length: time.Duration(w.Length * float64(time.Second)),
	}, r.handle)
}

// reconciler reconciles Websites, and records each take.
type reconciler struct {
	*workerPart
	client  ctrlclient.Client
	journal *journal.Writer
}

func (r *reconciler) handle(ctx context.Context, t *client.Take) (client.Result, error) {
	start := journal.Now()
	live := &guarded{r.client, t}
	key := types.NamespacedName{Namespace: t.Namespace, Name: t.Name}
	var site webv1.Website
	if err := live.Get(ctx, key, &site); err != nil {
		if !apierrors.IsNotFound(err) {
			return client.Result{}, err
		}
		site = webv1.Website{}
	}
	n, end := r.journal.Start(start, key, string(site.UID), site.Generation, t.Epoch)
	defer end()
	r.journal.Take(n, deadline(t), t.ResourceVersion, t.Attempt)
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() { defer close(watched); r.watch(watching, n, t) }()
	defer func() { stop(); <-watched }()

	// Something outside of Kubernetes takes its time.
	if err := await.Sleep(ctx, time.Duration(r.Pause*float64(time.Second))); err != nil {
		return client.Result{}, err
	}
	inner := &website.WebsiteReconciler{
		Client: live, Recorder: &record.FakeRecorder{}, Pages: website.Pages{Dir: r.Pages},
	}
	result, err := inner.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	return client.Result{After: result.RequeueAfter}, err
}

// deadline is a take's, by the journal's clock.
func deadline(t *client.Take) time.Duration { return journal.Now() + t.Remaining() }

// lookEvery is how often a worker looks whether a take was extended.
const lookEvery = 100 * time.Millisecond

// watch records extensions.
func (r *reconciler) watch(ctx context.Context, n uint64, t *client.Take) {
	last := deadline(t)
	for await.Sleep(ctx, lookEvery) == nil {
		if now := deadline(t); now > last+lookEvery {
			r.journal.Take(n, now, t.ResourceVersion, t.Attempt)
			last = now
		}
	}
}

// guarded fails reads once the take has expired: what was read before a pause must not be published after it.
type guarded struct {
	ctrlclient.Client
	take *client.Take
}

// Get implements client.Reader.
func (g *guarded) Get(
	ctx context.Context, key ctrlclient.ObjectKey, obj ctrlclient.Object, opts ...ctrlclient.GetOption,
) error {
	err := g.Client.Get(ctx, key, obj, opts...)
	if g.take.Remaining() <= 0 {
		return fmt.Errorf("get %T %s: %w", obj, key, client.ErrEnded)
	}
	return err
}
