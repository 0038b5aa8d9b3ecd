package dispatch

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
	"time"

	website "github.com/rota-dev/rota/examples/website/controller"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
	"github.com/rota-dev/rota/test/rig/process"
)

// engine is one run.
type engine struct {
	o       *Options
	dir     string
	seed    uint64
	begun   time.Duration // by journal.Now
	pages   website.Pages
	cluster *cluster
	follow  *rig.Follower
	load    *rig.AimedLoad
	ports   []int

	// dead is the killed dispatcher's part of the table until the table takes it away.
	dead atomic.Pointer[crash]

	mu          sync.Mutex
	dispatchers []*dispatcher
	workers     []*worker
	phases      []*phase
	crashes     []*crash
	losses      []loss
	out         io.Writer
}

// crash is that of a dispatcher.
type crash struct {
	pod   string
	slots slot.Set
	epoch uint64 // of the table at that time
	at    time.Duration
}

// loss is that of a worker: it was killed, or stopped for longer than its takes.
type loss struct {
	worker  string
	stopped bool
	at      time.Duration
}

// phase is a part of the story, by the journals' clock.
type phase struct {
	name       string
	start, end time.Duration
}

// Run runs the demo. It returns a report also with an error, where there is one to be made. When it returns, all
// processes are gone, and so is every folder unless Options.Keep is set.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Command, err = process.Command(o.Command, Argument); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "rota-dispatch-demo-")
	if err != nil {
		return nil, err
	}
	e := &engine{
		o: &o, dir: dir, pages: website.Pages{Dir: filepath.Join(dir, "pages")}, begun: journal.Now(), out: o.Progress,
		seed: cmp.Or(o.Seed, rand.Uint64()>>32), // not for secrets
	}
	defer func() {
		if o.Keep {
			e.log("Journals and logs are in %s.", dir)
		} else {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := os.Mkdir(e.pages.Dir, 0o700); err != nil {
		return nil, err
	}
	e.log("Seed of the load: %d", e.seed)
	report, err = e.run(ctx)
	if end := new(process.EndError); errors.As(err, &end) {
		process.Tell(err, e.log)
		err = errors.New(end.How() + ", which the demo had not asked of it")
	}
	return report, err
}

// log adds a line to what is shown.
func (e *engine) log(format string, args ...any) {
	at := (journal.Now() - e.begun).Seconds()
	_, _ = fmt.Fprintf(e.out, "%6.1fs  %s\n", at, fmt.Sprintf(format, args...)) // nobody may be looking any more
}

func (e *engine) run(ctx context.Context) (report *Report, err error) {
	// Whatever ends the run ends everything it began.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel(nil)

	e.log("Starting a Kubernetes API server ...")
	if e.cluster, err = openCluster(ctx, e.o, e.dir); err != nil {
		return nil, err
	}
	defer func() {
		cancel(nil)
		background.Wait()
		for _, p := range e.processes() {
			p.Kill()
		}
		err = errors.Join(err, e.cluster.Clear())
	}()
	if err := e.findPython(ctx); err != nil {
		return nil, err
	}
	if e.ports, err = reserve(ctx); err != nil {
		return nil, err
	}
	e.load = rig.NewAimedLoad(e.cluster.Cluster, e.seed, e.pages, e.o.world().SlotOf)
	e.load.Spare = true // dispatchers watch Websites alone
	if e.follow, err = rig.NewFollower(e.cluster.Config, e.cluster.Namespace, tierName); err != nil {
		return nil, err
	}
	background.Go(func() { e.follow.Run(ctx, e.aim) })
	background.Go(func() { e.cluster.Watch(ctx, cancel, e.failure) })

	err = e.story(ctx)
	e.load.Finish()
	if err == nil {
		report, err = e.finish(ctx)
	}
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	return report, nil
}

// aim points half of the load at the slots that are on the way.
func (e *engine) aim(t *table.Table) {
	var set slot.Set
	for _, r := range t.Runs {
		if r.Next != "" || r.Owner == "" || r.Unsettled {
			set.AddRange(r.Slots)
		}
	}
	if dead := e.dead.Load(); dead != nil {
		if slices.ContainsFunc(t.Members, func(m table.Member) bool { return m.Pod == dead.pod }) {
			set = set.Union(dead.slots)
		}
	}
	e.load.Aim(set)
}

// processes returns all that were started.
func (e *engine) processes() (out []*process.Process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range e.dispatchers {
		out = append(out, d.Process)
	}
	for _, w := range e.workers {
		out = append(out, w.Process)
	}
	return out
}

// tier returns the dispatchers that run and are meant to, oldest first, and team the workers.
func (e *engine) tier() []*dispatcher {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.dispatchers), func(d *dispatcher) bool { return !d.Running() })
}

func (e *engine) team() []*worker {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.workers), func(w *worker) bool { return !w.Running() })
}

// takes returns all takes so far.
func (e *engine) takes() (all []journal.Reconcile, err error) {
	e.mu.Lock()
	workers := slices.Clone(e.workers)
	e.mu.Unlock()
	for _, w := range workers {
		list, err := w.takes()
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// failure is an error if the history cannot be followed, or a process ended that should not.
func (e *engine) failure() error {
	_, err := e.follow.History()
	for _, p := range e.processes() {
		err = cmp.Or(err, p.Failure())
	}
	return err
}

func (e *engine) slotOf(key judge.Site) slot.Slot { return e.o.world().SlotOf(key) }
