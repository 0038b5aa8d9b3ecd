package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	website "github.com/rota-dev/rota/examples/website/controller"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/cli/dashboard"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/journal"
	"github.com/rota-dev/rota/test/judge"
	"github.com/rota-dev/rota/test/process"
	"github.com/rota-dev/rota/test/stage"
)

const (
	replicas = 3
	// quietFor is how long the table must not change for a phase to be over.
	quietFor = time.Second
	// surveyPeriod is the time between two looks at all objects.
	surveyPeriod = 250 * time.Millisecond
	// stepLimit bounds every wait but those for a lease.
	stepLimit = 2 * time.Minute
	// canaryRate is how many updates per second aim at slots on the way, so that short windows hold many; crashRate
	// the same while a dead replica's slots wait for its lease. Nothing but the load goes on in the baseline. Neither is
	// more than the load.
	canaryRate, crashRate = 20, 15
)

// engine is one run.
type engine struct {
	o       *Options
	dir     string
	pages   string
	seed    uint64
	begun   time.Duration // by journal.Now
	cluster *cluster
	follow  *stage.Follower
	load    *load
	view    *view

	// hand and page are the dashboard's buttons, and its server; nil without a dashboard.
	hand *hand
	page *dashboard.Server
	// turn begins the audience's turn, which is over when the channel is closed.
	turn func() <-chan struct{}

	// dead are the slots of a killed replica until the table takes them away from it.
	dead atomic.Pointer[deadSlots]

	mu     sync.Mutex
	pods   int
	procs  []*replica
	phases []*phaseRun
	// kills are those by hand, and replicas that ended by themselves.
	kills []*phaseRun
	// manager runs the controllers of Options.Autoscale, and scaling is what its autoscaler did.
	manager *process.Process
	scaling []Scaled
	// slow says that the reconciles take Autoscale.Work longer.
	slow bool
	// trials are what became of the canaries of Options.Canary.
	trials []Trial
	// baseline is when the replicas worked undisturbed.
	baseline phaseRun
	// pace is how many reconciles there were in quietFor of that time.
	pace int
	// bears is how many Websites the machine brought up per second; 0: that was not measured.
	bears float64
}

type deadSlots struct {
	pod   string
	slots slot.Set
}

// Run runs the demo. It returns a report also with an error, where there is one to be made. When it returns, all
// processes are gone, and so is every folder unless Options.Keep is set. When ctx ends it ends as soon as it can,
// but see Options.Dashboard.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Command, err = process.Command(o.Command, OperatorArgument); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "rota-demo-")
	if err != nil {
		return nil, err
	}
	e := &engine{
		o: &o, dir: dir, pages: filepath.Join(dir, "pages"), seed: cmp.Or(o.Seed, rand.Uint64()>>32),
		view: newView(o.Progress), begun: journal.Now(),
	}
	defer func() {
		if o.Keep {
			e.view.log("Journals, logs and audit log are in %s.", dir)
		} else {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := os.Mkdir(e.pages, 0o755); err != nil {
		return nil, err
	}
	e.view.log("Seed of the load: %d", e.seed)
	return e.run(ctx)
}

func (e *engine) run(ctx context.Context) (report *Report, err error) {
	// Whatever ends the run ends everything it began. The end of the caller's context does, until the audience has its
	// turn.
	caller := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(caller))
	defer cancel(nil)
	spare := context.AfterFunc(caller, func() { cancel(context.Cause(caller)) })
	defer spare()
	e.turn = func() <-chan struct{} {
		spare()
		return caller.Done()
	}
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel(nil)

	e.view.log("Starting a Kubernetes API server ...")
	if e.cluster, err = openCluster(ctx, e.o, e.dir); err != nil {
		return nil, err
	}
	defer func() {
		cancel(nil)
		background.Wait()
		for _, p := range e.all() {
			p.Kill()
		}
		if e.manager != nil {
			e.manager.Kill()
		}
		if e.o.Keep && e.cluster.Plane != nil { // which takes its audit log with it
			for _, path := range e.cluster.Plane.AuditLogs() {
				err = errors.Join(err, os.Link(path, filepath.Join(e.dir, filepath.Base(path))))
			}
		}
		err = errors.Join(err, e.cluster.Clear())
	}()
	e.load = newLoad(e.cluster.Client, e.seed, website.Pages{Dir: e.pages}, e.slotOf)
	if a := e.o.Autoscale; a != nil { // it is overloaded on purpose
		e.load.Patience = a.BurstLength + a.Limit
	}
	if e.follow, err = stage.NewFollower(e.cluster.Config, rotaNamespace, rotaName); err != nil {
		return nil, err
	}
	background.Go(func() { e.follow.Run(ctx, e.aim) })
	background.Go(func() { e.cluster.Watch(ctx, cancel, e.failure) })
	background.Go(func() { e.show(ctx) })
	if e.o.Dashboard != nil {
		if err := e.open(ctx); err != nil {
			return nil, err
		}
		background.Go(func() {
			if err := e.page.Run(ctx); err != nil {
				cancel(fmt.Errorf("dashboard: %w", err))
			}
		})
	}

	// A process that ends by itself ends the story, and what was until then is judged.
	telling, endStory := context.WithCancelCause(ctx)
	defer endStory(nil)
	background.Go(func() { e.cluster.Watch(telling, endStory, e.fallen) })
	loading, endLoad := context.WithCancel(ctx)
	defer endLoad()
	story, finish := e.story, e.finish
	if e.o.Migrate {
		story, finish = e.migration, e.finishMigration
	}
	if e.o.Autoscale != nil {
		story = e.autoscaling
	}
	if e.o.Canary != nil {
		story = e.canaries
	}
	err = story(telling, loading, ctx)
	endLoad()
	e.load.Wait()
	if fall := e.fallen(); fall != nil && ctx.Err() == nil {
		err = e.endEarly(ctx, fall)
	}
	if err == nil {
		if report, err = finish(ctx); report != nil {
			report.Ended = process.TellAll(e.bound(), e.view.log)
		}
	}
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	return report, nil
}

func (e *engine) world() judge.World {
	return judge.World{Pod: podOf, Slots: e.o.Slots, Key: e.o.key()}
}

func (e *engine) slotOf(site judge.Site) slot.Slot { return e.world().SlotOf(site) }

// aim points half of the load, and the canaries, at the slots that are on the way. In the story of Options.Canary it
// does not: changes of another sort than elsewhere take longer with any build.
func (e *engine) aim(t *table.Table) {
	if e.o.Canary != nil {
		return
	}
	var set slot.Set
	for _, r := range t.Runs {
		if r.Next != "" || r.Owner == "" || r.Unsettled {
			set.AddRange(r.Slots)
		}
	}
	if dead := e.dead.Load(); dead != nil {
		still := false
		for _, m := range t.Members {
			still = still || m.Pod == dead.pod
		}
		if still {
			set = set.Union(dead.slots)
		}
	}
	e.load.moving.Store(&set)
}

// start starts a replica, the next one by number.
func (e *engine) start() (*replica, error) { return e.startAs("v1", e.o.Command) }

// startAs is start with another program.
func (e *engine) startAs(build string, command []string) (*replica, error) {
	return e.startMode(build, command, false)
}

// startMode is startAs for a replica with Rota, or with leader election.
func (e *engine) startMode(build string, command []string, stock bool) (*replica, error) {
	return e.startPod(e.nextPod(), build, command, func(c *operatorConfig) { c.Stock = stock })
}

// nextPod is the name of a Pod no replica had before.
func (e *engine) nextPod() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pods++
	return fmt.Sprintf("web-%d", e.pods)
}

// startPod starts a replica as a Pod of that name; change changes its configuration.
func (e *engine) startPod(pod, build string, command []string, change func(*operatorConfig)) (*replica, error) {
	kubeconfig, err := e.cluster.kubeconfig(pod)
	if err != nil {
		return nil, err
	}
	election := ""
	if e.o.Migrate {
		election = electionName
	}
	config := operatorConfig{
		Election: election,
		Build:    build, Kubeconfig: kubeconfig, Pages: e.pages, Slots: e.o.Slots, Delivery: e.o.Delivery,
		Verbose: e.o.Verbose,
		Lease:   e.o.LeaseDuration, Renew: e.o.RenewDeadline, Retry: e.o.RetryPeriod, Write: e.o.WriteTimeout,
	}
	change(&config)
	p, err := startReplica(command, e.dir, pod, config)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.procs = append(e.procs, p)
	if e.slow {
		return p, p.Say(sayWork + e.o.Autoscale.Work.String())
	}
	return p, nil
}

func (e *engine) all() []*replica {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.procs)
}

// live returns the replicas that run and are meant to, oldest first.
func (e *engine) live() []*replica {
	return slices.DeleteFunc(e.all(), func(p *replica) bool { return !p.Running() })
}

// failure is an error if the history cannot be followed.
func (e *engine) failure() error {
	_, err := e.follow.History()
	return err
}

// until waits until check returns "", and says what it waited for if that takes too long.
func until(ctx context.Context, limit time.Duration, check func() string) error {
	return await.Until(ctx, 20*time.Millisecond, limit, check)
}

// stop ends the replicas with SIGTERM, and those that take too long with SIGKILL.
func (e *engine) stop(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	live := e.live()
	for _, p := range live {
		if err := p.End(syscall.SIGTERM); err != nil {
			return err
		}
	}
	for _, p := range live {
		select {
		case <-p.Done():
		case <-ctx.Done():
			p.Kill()
			return fmt.Errorf("replica %s did not end within %v of SIGTERM:\n%s", p.pod, limit, p.Tail())
		}
		if err := p.Failure(); err != nil {
			return err
		}
	}
	return nil
}

// phaseRun is when a phase was, by both clocks.
type phaseRun struct {
	name         string
	start, end   time.Duration
	wallStart    time.Time
	wallEnd      time.Time
	sites        []judge.Site // at the start
	killed       time.Duration
	victim       string
	victimsSlots slot.Set
	processors   processors
	busy         *float64
}

func (p *phaseRun) begin() {
	p.start, p.wallStart = journal.Now(), time.Now()
	p.processors, _ = readProcessors()
}

func (p *phaseRun) finish() {
	p.end, p.wallEnd = journal.Now(), time.Now()
	if now, ok := readProcessors(); ok {
		p.busy = p.processors.busy(now)
	}
}
