package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/duty"
	"github.com/rota-dev/rota/internal/elapsed"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/internal/report"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/internal/upstream/clientgo"
	"github.com/rota-dev/rota/internal/writes"
	"github.com/rota-dev/rota/slot"
)

// Engine implements rota.Rota: it connects the parts of a member. Its methods may be called concurrently.
type Engine struct {
	opts  Options
	cfg   member.Config // of the current incarnation; incarnations differ only in Self.ID and Seed
	log   logr.Logger
	store store.Store
	// process is the ID of the process's first incarnation and identifies the process.
	process string
	rest    *rest.Config // nil if there is no API server
	// fakes is true if the program uses fake clients, which cannot be wrapped.
	fakes bool
	// parts returns the holders of an incarnation's slots.
	parts   func(*replica.Calls) []replica.Part
	account report.Account
	// reports is nil if there is no API server.
	reports  report.Store
	reporter *report.Reporter
	gate     *gate.Gate
	long     gate.LongWrites
	share    *delivery.Share
	clock    replica.Clock

	metrics *metrics
	meter   *meter
	// present is the current incarnation, or nil.
	present atomic.Pointer[incarnation]
	state   *replica.State
	// hasStopped is true if an informer has stopped since the last checkEnded.
	hasStopped atomic.Bool
	working    atomic.Bool // there is an incarnation, so informers must run
	ending     atomic.Bool // the process is ending, so informers may stop before the member leaves
	faults     *controllers.Faults
	labels     *labeller.Kinds
	// refusals makes sure that each missing permission is reported once.
	refusals refusals

	writes      *writes.Writes
	duties      *duty.Duties
	keeper      controllers.Keeper
	controllers *controllers.Set
	adapted     adapter.Parts

	// peers is nil without Options.Address.
	peers *peers

	setup        setup
	denied       chan error // a permission is missing
	bypassed     chan error // an informer of ShareInformer reads through a client that was not wrapped
	loggedUnseen sync.Map   // kinds for which unseen has logged
	declared     sync.Map   // kinds for which Shard was called
}

// New implements rota.New.
func New(cfg *rest.Config, opts Options) (*Engine, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	config, err := opts.config()
	if err != nil {
		return nil, err
	}
	if opts.Solo {
		return newSolo(cfg, opts, config), nil
	}
	if cfg == nil {
		return nil, fmt.Errorf("rota %s: New got no config: pass the config of the cluster, or set Options.Solo in a test "+
			"without one", opts.Name)
	}
	if !clientgo.KeepsOrder() {
		return nil, fmt.Errorf("rota %s: client-go's feature gate InOrderInformers is off, and handovers need the order of "+
			"events: remove KUBE_FEATURE_InOrderInformers=false from the environment", opts.Name)
	}
	r := newEngine(cfg, opts, config)
	kube, err := store.NewKubernetes(cfg, store.Options{
		Namespace: opts.Namespace, Name: opts.Name, LeaseDuration: config.LeaseDuration, Instance: opts.Identity.Pod,
		Report: r.report, Peer: func() string { return r.peers.published() },
	})
	if err != nil {
		return nil, err
	}
	if r.peers, err = newPeers(r, kube.Peer); err != nil {
		return nil, fmt.Errorf("rota %s: %w", opts.Name, err)
	}
	r.store, r.rest = kube, rest.CopyConfig(cfg)
	reports, err := coverage.NewReports(cfg, opts.Namespace, opts.Name)
	if err != nil {
		return nil, err
	}
	r.reports = reports
	return r, nil
}

// newEngine returns an Engine without a store. cfg is nil if the program uses fake clients.
func newEngine(cfg *rest.Config, opts Options, config member.Config) *Engine {
	fakes := cfg == nil
	if !fakes {
		cfg = rest.CopyConfig(cfg) // the caller may change its own
	}
	log := opts.Logger.WithName("rota").WithValues("rota", opts.Namespace+"/"+opts.Name)
	r := &Engine{
		opts: opts, cfg: config, log: log, clock: replica.NewClock(elapsed.New()), state: replica.NewState(),
		fakes: fakes, process: config.Self.ID, denied: make(chan error, 1),
		bypassed: make(chan error, 1), keeper: controllers.NoKeeper{},
	}
	r.share = delivery.New(delivery.Options{
		Slots: config.Slots, Key: config.Key, Mode: opts.Delivery, Label: opts.Label, Plain: fakes, Logger: log,
		Mislabelled: func(kind schema.GroupKind, obj metav1.Object) { r.labels.Mislabelled(kind, obj) },
		Completed:   func(opened map[schema.GroupKind]delivery.Opened) { r.controllers.Complete(opened) },
		Unseen:      r.unseen, Stopped: r.informerStopped, Leaves: r.ownerLeaves, Ahead: r.receiversAhead,
	})
	r.parts = r.workers
	r.gate = gate.New(config.Slots+slot.MaxDuties, func() time.Duration { return r.clock.Late() })
	r.labels = labeller.NewKinds(labeller.Env{
		API: cfg, Share: r.share, Key: config.Key, Namespaces: opts.LabelNamespaces, Log: log, Permit: r.permit,
		Report: r.report, Emit: r.emit,
	})
	r.duties = duty.New(duty.Env{
		Gate: r.gate, Log: log, Now: r.now, Caches: r.share, HeldBack: r.heldBack,
		After:     func(wait time.Duration, do func()) { time.AfterFunc(wait, do) },
		AfterFunc: func(ctx context.Context, do func()) { context.AfterFunc(ctx, do) },
	})
	r.metrics, r.meter = newMetrics(r), newMeter()
	r.writes = writes.New(writes.Env{
		Share: r.share, Gate: r.gate, Log: log, API: cfg, ID: r.ID, HasJoined: r.state.HasJoined, Left: r.untilDeadline,
		Now: r.now, Config: config, Long: &r.long, WantLong: r.wantLong, Fenced: r.metrics.fenced.Inc,
		Late: r.metrics.late.Inc,
	})
	r.account = holdings{r}
	r.reporter = report.New(report.Env{
		Rota: r.Name(), Config: config, Period: opts.ScrubPeriod, Group: opts.Group,
		Patience: startPatience, Again: startEvents, Log: log, Now: r.now,
		Store: func() report.Store { return r.reports }, Table: r.tableOf, Census: r.share.Census, Failed: r.scrubFailed,
		Compares: func() bool { return r.doesOwn(report.ScrubDuty) }, Emit: r.emit,
	})
	r.faults = controllers.NewFaults(r.now, log)
	r.controllers = controllers.NewSet(controllers.Env{
		Share: r.share, Gate: r.gate, Writes: r.writes, Faults: r.faults, Log: log, ByUID: config.Key == slot.KeyUID,
		Now: r.now, Wall: r.wall, Asked: r.metrics.verdict, EmitNow: r.emitNow,
		Forward: r.forwardEvent, Dropped: r.metrics.drop,
		Canary: func() *table.Canary { return &r.tableOf().Canary },
		After:  func(wait time.Duration, do func()) { time.AfterFunc(wait, do) }, Runner: replica.Goroutines{},
	})
	r.adapted = r.adaptable()
	return r
}

// now returns the monotonic time since New.
func (r *Engine) now() time.Duration { return r.clock.Mono() }

// Name implements rota.Rota.Name.
func (r *Engine) Name() types.NamespacedName {
	return types.NamespacedName{Namespace: r.opts.Namespace, Name: r.opts.Name}
}

// ID implements rota.Rota.ID.
func (r *Engine) ID() string { return r.state.ID() }

// Owns implements rota.Rota.Owns.
func (r *Engine) Owns(kind schema.GroupKind, name types.NamespacedName) bool {
	locate := r.share.Locate
	if r.cfg.Key == slot.KeyUID {
		locate = r.share.Stored // a new object that reuses the name of a deleted one may belong to another member
	}
	n, ok := locate(kind, r.share.KeyOf(kind, name))
	return ok && r.gate.Owns(n) && !r.share.Lacks(kind, n)
}

// Joined implements rota.Rota.Joined.
func (r *Engine) Joined() <-chan struct{} { return r.state.Joined() }

// wall returns the wall clock in whole seconds, for reports.
func (r *Engine) wall() time.Time { return time.Unix(r.clock.Now().Wall, 0) }

// report logs an error or reports a missing permission. The member decides how to handle it.
func (r *Engine) report(what string, err error) {
	if r.refused(what, err) {
		return
	}
	r.log.Error(err, what, "member", r.ID())
}

// wantLong asks the current incarnation to allow long writes.
func (r *Engine) wantLong(until time.Duration) bool {
	i := r.present.Load()
	if i == nil {
		return false
	}
	i.WantLong(until)
	return true
}

// untilDeadline returns the time until the deadline, negative once it has passed.
func (r *Engine) untilDeadline() time.Duration {
	at, _, _ := r.state.Deadline()
	return at - r.clock.Late()
}

// Run implements rota.Rota.Run.
func (r *Engine) Run(ctx context.Context) error {
	if !r.setup.begin() {
		return fmt.Errorf("rota %s: Run was called before", r.Name())
	}
	if len(r.keeper.Kinds()) > 0 && r.opts.LeaderElectionID != "" {
		return fmt.Errorf("rota %s: Options.LeaderElectionID: dispatchers cannot hold leader election's Lease, since their "+
			"workers go on after it is lost; leave it out", r.Name())
	}
	defer r.closeStore()
	endPeers, err := r.peers.listen(ctx)
	if err != nil {
		return fmt.Errorf("rota %s: %w", r.Name(), err)
	}
	defer endPeers()
	if done, err := r.awaitSetup(ctx); !done || err != nil {
		return err
	}
	r.declareOwnDuties()
	r.cfg.Self.Duties = r.duties.Names()
	endLabels, err := r.label(ctx)
	if err != nil {
		return fmt.Errorf("rota %s: %w", r.Name(), err)
	}
	defer endLabels()
	if runs, err := r.awaitStart(ctx); !runs || err != nil {
		return err
	}
	r.askForResets()
	looking, endLooking := context.WithCancel(context.WithoutCancel(ctx))
	defer endLooking()
	r.widenUnlabelled(looking)
	if r.reports != nil && !r.reporter.AwaitAlike(ctx, r.outline(r.cfg.Self.ID, r.settings())) {
		return nil
	}
	go r.share.WatchSelectors(looking)
	go r.watchFailing(looking)
	go r.watchWiring(looking)
	r.working.Store(true)
	defer r.working.Store(false)
	for {
		stop := newIncarnation(ctx, r).run(ctx)
		if stop.Err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			if !stop.Rejoin {
				break
			}
			r.log.Info("Expelled while leaving; there is nothing left to hand over", "cause", stop.Err.Error())
			return nil
		default:
		}
		if !stop.Rejoin {
			return fmt.Errorf("rota %s: %w", r.Name(), stop.Err)
		}
		r.log.Error(stop.Err, "Expelled; joining again once nothing is in flight")
		if !r.idle(ctx) {
			return fmt.Errorf("rota %s: %w; reconciles are still in flight, so this process must end", r.Name(), stop.Err)
		}
		former := append(slices.Clone(r.cfg.Former), r.cfg.Self.ID)
		r.cfg.Former = former[max(0, len(former)-maxFormer):]
		r.cfg.Self.ID = newID(r.opts.Identity.Pod)
		r.metrics.rejoins.Inc()
	}
}

// closeTimeout bounds the wait for events in flight when a member ends.
const closeTimeout = 3 * time.Second

// closeStore waits for unsent events and closes the connections.
func (r *Engine) closeStore() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		r.store.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout):
		r.log.Info("Events were still under way when this member ended", "waited", closeTimeout.String())
	}
}

// maxFormer is how many earlier incarnations are remembered. Older ones are no longer in any table.
const maxFormer = 16

// idle waits until nothing is in flight (rule R13). It gives up after LeaseDuration, by which time every write has
// ended.
func (r *Engine) idle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.LeaseDuration)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for r.inFlight() > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}
