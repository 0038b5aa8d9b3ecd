package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/demo/verdict"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	website "github.com/rota-dev/rota/examples/website/controller"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
	"github.com/rota-dev/rota/test/rig/process"
)

// OperatorArgument makes the program rota-demo a replica.
const OperatorArgument = "demo-operator"

const (
	// Name is the rota's name.
	Name = "website"
	// Namespace is the rota's namespace.
	Namespace = "rota-demo"
	// SitesNamespace is the Websites' namespace.
	SitesNamespace = Namespace + "-sites"

	// quietFor is how long the table must not change for a phase to be over.
	quietFor = time.Second
	// surveyPeriod is the time between two looks at all objects.
	surveyPeriod = 250 * time.Millisecond
	// stepLimit bounds every wait but those for a lease.
	stepLimit = 2 * time.Minute
	// stopLimit is how long replicas may take to end.
	stopLimit = 40 * time.Second
)

// Show is one run of the demo: the replicas, their load, and what they did. Its exported methods are for stories.
type Show struct {
	o       *Options
	dir     string
	pages   string
	begun   time.Duration // by journal.Now
	cluster *rig.Cluster
	follow  *rig.Follower
	fleet   *rig.Fleet
	load    *rig.AimedLoad
	view    *view
	// turn makes the end of Run's context close the channel, in place of ending the run.
	turn       func() <-chan struct{}
	background sync.WaitGroup
	// migrates is true if replicas without Rota also work. The judge has no table for them.
	migrates bool
	// unaimed keeps the load from preferring slots on the way.
	unaimed bool
	// dead are the slots of a killed replica until the table takes them away from it.
	dead atomic.Pointer[deadSlots]

	mu       sync.Mutex
	phases   []*judge.Phase
	kills    []*judge.Phase // those by hand and in canaries
	baseline judge.Phase    // when the replicas worked undisturbed
	// told are the verdicts of the story itself.
	told []verdict.Verdict
}

type deadSlots struct {
	pod   string
	slots slot.Set
}

// Run runs the demo. When it returns, all processes are gone, and so is every folder unless Options.Keep is set. When
// ctx ends, it ends as soon as it can; but see ByHand.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	if o.Command, err = process.Command(o.Command, OperatorArgument); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "rota-demo-")
	if err != nil {
		return nil, err
	}
	o.Seed = cmp.Or(o.Seed, rand.Uint64()>>32)
	s := &Show{
		o: &o, dir: dir, pages: filepath.Join(dir, "pages"), begun: journal.Now(),
		view: &view{out: o.Progress, begun: time.Now()},
	}
	defer func() {
		if o.Keep {
			s.view.log("Journals, logs and audit log are in %s.", dir)
		} else {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := os.Mkdir(s.pages, 0o755); err != nil {
		return nil, err
	}
	s.view.log("Seed of the load: %d", o.Seed)
	report, err = s.run(ctx)
	if end := new(process.EndError); errors.As(err, &end) {
		process.Tell(err, s.view.log)
		err = errors.New(end.How() + ", which the demo had not asked of it")
	}
	return report, err
}

func (s *Show) run(caller context.Context) (report *Report, err error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(caller))
	stop := context.AfterFunc(caller, func() { cancel(context.Cause(caller)) })
	defer stop()
	s.turn = func() <-chan struct{} {
		stop()
		return caller.Done()
	}
	s.view.log("Starting a Kubernetes API server ...")
	if s.cluster, err = rig.Open(ctx, rig.Options{
		Name: Namespace, Kubeconfig: s.o.Kubeconfig, AuditLogs: s.o.AuditLogs, Dir: s.dir,
		ControlPlane: controlplane.Options{Audit: true, Env: []string{rig.FewCollections}},
	}); err != nil {
		return nil, errors.Join(occupied(err), context.Cause(ctx))
	}
	defer func() {
		cancel(nil)
		s.background.Wait()
		if s.fleet != nil {
			s.fleet.Close()
		}
		if s.o.Keep && s.cluster.Plane != nil { // which takes its audit log with it
			for _, path := range s.cluster.Plane.AuditLogs() {
				err = errors.Join(err, os.Link(path, filepath.Join(s.dir, filepath.Base(path))))
			}
		}
		err = errors.Join(err, s.cluster.Clear())
	}()
	identify, err := s.cluster.Users(ctx, Name, s.o.Delivery > sharding.Filter)
	if err != nil {
		return nil, occupied(err)
	}
	s.fleet = &rig.Fleet{Dir: s.dir, Command: s.o.Command, Identify: identify, Operator: rig.Operator{
		Rota: Name, Namespace: Namespace, Sites: SitesNamespace, Build: "v1", Pages: s.pages, Slots: s.o.Slots,
		Delivery: s.o.Delivery, Lease: s.o.LeaseDuration, Renew: s.o.RenewDeadline, Retry: s.o.RetryPeriod,
		Write: s.o.WriteTimeout, Verbose: s.o.Verbose,
	}}
	s.load = rig.NewAimedLoad(s.cluster, s.o.Seed, website.Pages{Dir: s.pages}, s.world().SlotOf)
	if s.follow, err = rig.NewFollower(s.cluster.Config, Namespace, Name); err != nil {
		return nil, err
	}
	s.background.Go(func() { s.follow.Run(ctx, s.aim) })
	s.background.Go(func() { s.cluster.Watch(ctx, cancel, s.failure) })
	s.background.Go(func() { s.show(ctx) })
	if err = s.o.Story(ctx, s); err != nil {
		cancel(err)
	}
	s.load.Finish()
	if err == nil {
		report, err = s.finish(ctx)
	}
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	return report, nil
}

// occupied says what to do where an earlier run has left its objects.
func occupied(err error) error {
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	return fmt.Errorf("set up the demo: %w. Is another one running, or was one killed? Then `kubectl delete namespace %s "+
		"%s`, and the ClusterRole and ClusterRoleBinding %s", err, Namespace, SitesNamespace, Namespace)
}

// failure is an error if a process ended that should not, or if the table cannot be followed.
func (s *Show) failure() error {
	if err := s.fleet.Fallen(); err != nil {
		return err
	}
	_, err := s.follow.History()
	return err
}

// Config is an administrator's, and must not be changed.
func (s *Show) Config() *rest.Config { return s.cluster.Config }

// Kubeconfig is the path of an administrator's kubeconfig.
func (s *Show) Kubeconfig() string {
	if plane := s.cluster.Plane; plane != nil {
		return plane.Kubeconfig()
	}
	return s.o.Kubeconfig
}

// Pods are the replicas that run and were not told to end, oldest first.
func (s *Show) Pods() []string { return s.fleet.Pods() }

// Websites lists those that there are.
func (s *Show) Websites(ctx context.Context) ([]webv1.Website, error) { return s.cluster.Websites(ctx) }

// Table is the last version of the table that a watch showed, or nil before the first one.
func (s *Show) Table() *table.Table {
	t, _ := s.follow.Latest()
	return t
}

func (s *Show) world() judge.World {
	return judge.World{Pod: s.cluster.PodOfUser, Slots: s.o.Slots, Key: s.o.key()}
}

// aim points half of the load, and extra updates, at the slots that are on the way.
func (s *Show) aim(t *table.Table) {
	if s.unaimed {
		return
	}
	var set slot.Set
	for _, r := range t.Runs {
		if r.Next != "" || r.Owner == "" || r.Unsettled {
			set.AddRange(r.Slots)
		}
	}
	if dead := s.dead.Load(); dead != nil && memberOf(t, dead.pod) {
		set = set.Union(dead.slots)
	}
	s.load.Aim(set)
}

func memberOf(t *table.Table, pod string) bool {
	return t != nil && slices.ContainsFunc(t.Members, func(m table.Member) bool { return m.Pod == pod })
}

// running are the replicas among them that run and were not told to end.
func running(all []*rig.Replica) []*rig.Replica {
	return slices.DeleteFunc(slices.Clone(all), func(p *rig.Replica) bool { return !p.Live() })
}

// leave has a replica end by SIGTERM, and waits until it has.
func (s *Show) leave(ctx context.Context, p *rig.Replica) error {
	if err := p.Leave(); err != nil {
		return err
	}
	return until(ctx, stepLimit, p.Lingers)
}

// kill ends a replica at once, and notes in the phase what it had. Half of the load goes there.
func (s *Show) kill(p *rig.Replica, in *judge.Phase) error {
	t := s.Table()
	in.Victim, in.Killed = p.Pod, journal.Now()
	if t != nil {
		for _, m := range t.Members {
			if m.Pod == p.Pod {
				in.VictimsSlots = in.VictimsSlots.Union(t.Owned(m.ID).Intersect(t.Slots.All()))
			}
		}
	}
	s.load.More(crashRate)
	if err := p.Kill(); err != nil {
		return err
	}
	s.dead.Store(&deadSlots{p.Pod, in.VictimsSlots})
	if t != nil {
		s.aim(t)
	}
	return nil
}

// absent is "" if the table names a Pod.
func (s *Show) absent(pod string) string {
	if memberOf(s.Table(), pod) {
		return ""
	}
	return pod + " has not joined"
}

// Quiet waits until exactly the replicas that run share the slots evenly, and nothing moves.
func (s *Show) Quiet(ctx context.Context) error {
	limit := stepLimit + 4*max(s.o.LeaseDuration, 15*time.Second)
	return until(ctx, limit, func() string {
		t, since := s.follow.Latest()
		if problem := judge.Quiet(t, s.Pods()); problem != "" {
			return problem
		}
		if problem := s.fleet.Lingers(); problem != "" {
			return problem
		}
		if journal.Now()-since < quietFor {
			return "the table still changes"
		}
		return ""
	})
}

// until waits until check returns "". Its error says what check returned last.
func until(ctx context.Context, limit time.Duration, check func() string) error {
	return await.Until(ctx, 20*time.Millisecond, limit, check)
}

// work returns the number of reconciles so far.
func (s *Show) work() (n int, err error) {
	for _, p := range s.fleet.All() {
		done, err := p.Reconciles()
		if err != nil {
			return 0, err
		}
		n += len(done)
	}
	return n, nil
}

// reconciled waits until all Websites but so many are up to date.
func (s *Show) reconciled(ctx context.Context, limit time.Duration, but int) error {
	return await.Until(ctx, surveyPeriod, limit, func() string {
		total, behind, example, err := s.load.Survey(ctx)
		switch {
		case err != nil:
			return err.Error()
		case behind > but:
			return fmt.Sprintf("%d of %d Websites are not reconciled, such as %s", behind, total, example)
		}
		return ""
	})
}
