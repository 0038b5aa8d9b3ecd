package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	website "github.com/rota-dev/rota/examples/website/controller"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
	"github.com/rota-dev/rota/test/rig/process"
)

const (
	// quietFor is how long the table must not change for a phase to be over.
	quietFor = time.Second
	// surveyPeriod is the time between two looks at all objects.
	surveyPeriod = 250 * time.Millisecond
	// stepLimit bounds every wait but those for a lease.
	stepLimit = 2 * time.Minute
	// showPeriod is the time between two lines about the slots and the load.
	showPeriod = 5 * time.Second
	// usualLease is rota's default.
	usualLease = 15 * time.Second
)

// StageOptions are what a user chooses of a story. Slots is required.
type StageOptions struct {
	// Kubeconfig names a cluster to use, as an administrator who may impersonate. If it is empty, the stage starts a
	// control plane.
	Kubeconfig string
	// AuditLogs are the audit logs of all of that cluster's API servers, if they can be read here.
	AuditLogs []string
	// Objects is the number of Websites, by default as many as the machine reconciles in Stage.FillTime.
	Objects int
	// Rate is the number of updates, deletions and recreations per second, by default a third of the Websites that the
	// machine can bring up per second, and at most 50.
	Rate float64
	// Slots is the number of slots of the rota.
	Slots slot.Count
	// LeaseDuration is the members' lease, by default 15 s.
	LeaseDuration time.Duration
	// Seed is the load's. If it is 0, the stage chooses one and prints it.
	Seed uint64
	// Keep leaves the folder with journals, logs and audit log behind, and prints its path.
	Keep bool
	// Verbose makes the processes log more.
	Verbose bool
	// Progress gets a line for each event.
	Progress io.Writer
	// Command starts a process of Stage.Fleet: a program and its arguments.
	Command []string
}

// Validate checks the options and fills in defaults.
func (o *StageOptions) Validate() error {
	switch {
	case o.Objects < 0 || o.Objects > 100_000:
		return fmt.Errorf("objects %d: must be from 1 to 100000, or 0 for what the machine can sustain", o.Objects)
	case !(o.Rate >= 0 && o.Rate <= 1000):
		return fmt.Errorf("rate %v: must be at most 1000 per second, or 0 for what the machine can sustain", o.Rate)
	case o.LeaseDuration < 0:
		return fmt.Errorf("lease duration %v: must be above 0", o.LeaseDuration)
	case len(o.AuditLogs) > 0 && o.Kubeconfig == "":
		return fmt.Errorf("audit log %s: only with a kubeconfig; a control plane of its own has one", o.AuditLogs[0])
	}
	if err := o.Slots.Validate(); err != nil {
		return err
	}
	if o.Slots < 16 {
		return fmt.Errorf("slot count %d: use at least 16, so that there is something to share", o.Slots)
	}
	o.LeaseDuration = cmp.Or(o.LeaseDuration, usualLease)
	o.Seed = cmp.Or(o.Seed, rand.Uint64()>>32)
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	return nil
}

// Stage is where a story of several phases takes place in front of an audience. Set the fields of the first group
// before Play, which sets those of the second one.
type Stage struct {
	StageOptions
	// Name is the namespace of the rota, and Rota the rota's name.
	Name, Rota string
	// Key is what of an object is hashed.
	Key slot.Key
	// Audit has the stage's own control plane keep an audit log.
	Audit bool
	// FirstObjects is how many Websites are created to see how fast the machine brings them up, and FillTime about how
	// long it may take to bring up all of them, which are MostObjects at most.
	FirstObjects, MostObjects int
	FillTime                  time.Duration
	// Workers are the processes that reconcile; nil: the Fleet.
	Workers *Fleet

	// Dir is a folder for all files. Pages are what workers publish.
	Dir      string
	Pages    website.Pages
	Cluster  *Cluster
	Follower *Follower
	// Fleet are the members of the rota. The story sets Identify and Operator, or Config.
	Fleet *Fleet
	Load  *AimedLoad
	// Turn makes the end of Play's context close the channel, in place of ending the story.
	Turn func() <-chan struct{}
	// Background is waited for when the story has ended.
	Background sync.WaitGroup
	// Unaimed keeps the load from preferring slots on the way.
	Unaimed bool
	// Baseline is when everything worked undisturbed, Phases what came then, and Kills the kills beside them.
	Baseline      judge.Phase
	Phases, Kills []*judge.Phase

	begun   time.Duration // by journal.Now
	logging sync.Mutex
	// dead is the phase in which a process was killed.
	dead atomic.Pointer[judge.Phase]
}

// Play opens the stage, calls story and then, without load, finish. When it returns, all processes are gone, and so is
// every folder unless Keep is set. When ctx ends, so does the story's context.
func (s *Stage) Play(ctx context.Context, story, finish func(context.Context) error) (err error) {
	s.begun = journal.Now()
	if s.Dir, err = os.MkdirTemp("", s.Name+"-"); err != nil {
		return err
	}
	defer func() {
		if s.Keep {
			s.Log("Journals, logs and audit log are in %s.", s.Dir)
		} else {
			err = errors.Join(err, os.RemoveAll(s.Dir))
		}
	}()
	s.Pages.Dir = filepath.Join(s.Dir, "pages")
	if err := os.Mkdir(s.Pages.Dir, 0o755); err != nil {
		return err
	}
	s.Log("Seed of the load: %d", s.Seed)
	err = s.play(ctx, story, finish)
	if end := new(process.EndError); errors.As(err, &end) {
		process.Tell(err, s.Log)
		err = errors.New(end.How() + ", which the demo had not asked of it")
	}
	return err
}

func (s *Stage) play(caller context.Context, story, finish func(context.Context) error) (err error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(caller))
	stop := context.AfterFunc(caller, func() { cancel(context.Cause(caller)) })
	defer stop()
	s.Turn = func() <-chan struct{} {
		stop()
		return caller.Done()
	}
	s.Log("Starting a Kubernetes API server ...")
	if s.Cluster, err = Open(ctx, Options{
		Name: s.Name, Kubeconfig: s.Kubeconfig, AuditLogs: s.AuditLogs, Dir: s.Dir,
		ControlPlane: controlplane.Options{Audit: s.Audit, Env: []string{FewCollections}},
	}); err != nil {
		return errors.Join(s.occupied(err), context.Cause(ctx))
	}
	s.Fleet = &Fleet{Dir: s.Dir, Command: s.Command}
	if s.Workers == nil {
		s.Workers = s.Fleet
	}
	s.Workers.Dir = s.Dir
	defer func() {
		cancel(nil)
		s.Background.Wait()
		s.Workers.Close()
		s.Fleet.Close()
		if s.Keep && s.Cluster.Plane != nil { // which takes its audit log with it
			for _, path := range s.Cluster.Plane.AuditLogs() {
				err = errors.Join(err, os.Link(path, filepath.Join(s.Dir, filepath.Base(path))))
			}
		}
		err = errors.Join(err, s.Cluster.Clear())
	}()
	s.Load = NewAimedLoad(s.Cluster, s.Seed, s.Pages, s.World().SlotOf)
	if s.Follower, err = NewFollower(s.Cluster.Config, s.Name, s.Rota); err != nil {
		return err
	}
	s.Background.Go(func() { s.Follower.Run(ctx, s.aim) })
	s.Background.Go(func() { s.Cluster.Watch(ctx, cancel, s.failure) })
	s.Background.Go(func() { s.show(ctx) })
	if err = story(ctx); err != nil {
		cancel(err)
	}
	s.Load.Finish()
	if err == nil {
		err = finish(ctx)
	}
	if err != nil {
		return s.occupied(cmp.Or(context.Cause(ctx), err))
	}
	return nil
}

// occupied says what to do where an earlier run has left its objects.
func (s *Stage) occupied(err error) error {
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	return fmt.Errorf("set up the demo: %w. Is another one running, or was one killed? Then `kubectl delete namespace %s "+
		"%[2]s-sites`, and the ClusterRoles and ClusterRoleBindings whose names begin with %[2]s", err, s.Name)
}

// failure is an error if a process ended that should not, or if the table cannot be followed.
func (s *Stage) failure() error {
	_, err := s.Follower.History()
	return cmp.Or(s.Fleet.Fallen(), s.Workers.Fallen(), err)
}

// Log prints what happens, with the time since the start.
func (s *Stage) Log(format string, args ...any) {
	s.logging.Lock()
	defer s.logging.Unlock()
	// If the terminal or log cannot be written, there is no other place to report that.
	_, _ = fmt.Fprintf(s.Progress, "%6.1fs  %s\n", s.Since(journal.Now()), fmt.Sprintf(format, args...))
}

// Since returns how many seconds after the start of the stage a time by journal.Now was.
func (s *Stage) Since(at time.Duration) float64 { return (at - s.begun).Seconds() }

// show prints who owns how many slots, and what the workers and the load do, until ctx ends.
func (s *Stage) show(ctx context.Context) {
	before, _ := s.Workers.Records() // an error comes back at the end
	for await.Sleep(ctx, showPeriod) == nil {
		t := s.Table()
		now, err := s.Workers.Records()
		if t == nil || err != nil {
			continue
		}
		counts := t.Counts()
		var shares []string
		for _, m := range t.Members {
			shares = append(shares, fmt.Sprintf("%s %d", m.Pod, counts[m.ID]))
		}
		if n := counts[""]; n > 0 {
			shares = append(shares, fmt.Sprintf("no owner %d", n))
		}
		rate := float64(len(now.Reconciles)-len(before.Reconciles)) / showPeriod.Seconds()
		before = now
		c := s.Load.Counts()
		s.Log("  slots: %s; %.0f reconciles/s; %d Websites: %d updates, %d recreated, %d replaced",
			strings.Join(shares, ", "), rate, len(s.Load.Sites()), c.Updates, c.Recreations, c.Replacements)
	}
}

// AdminKubeconfig is the path of an administrator's kubeconfig.
func (s *Stage) AdminKubeconfig() string {
	if plane := s.Cluster.Plane; plane != nil {
		return plane.Kubeconfig()
	}
	return s.Kubeconfig
}

// Table is the last version of the table that a watch showed, or nil before the first one.
func (s *Stage) Table() *table.Table {
	t, _ := s.Follower.Latest()
	return t
}

// World is what the judge has to be told.
func (s *Stage) World() judge.World {
	return judge.World{Pod: s.Cluster.PodOfUser, Slots: s.Slots, Key: s.Key}
}

// aim points half of the load, and extra updates, at the slots that are on the way.
func (s *Stage) aim(t *table.Table) {
	if s.Unaimed {
		return
	}
	var set slot.Set
	for _, r := range t.Runs {
		if r.Next != "" || r.Owner == "" || r.Unsettled {
			set.AddRange(r.Slots)
		}
	}
	if dead := s.dead.Load(); dead != nil && idOf(t, dead.Victim) != "" {
		set = set.Union(dead.VictimsSlots)
	}
	s.Load.Aim(set)
}

// Absent is "" if the table names a Pod.
func (s *Stage) Absent(pod string) string {
	if idOf(s.Table(), pod) != "" {
		return ""
	}
	return pod + " has not joined"
}

// Quiet waits until exactly the members that run share the slots evenly, and nothing moves.
func (s *Stage) Quiet(ctx context.Context) error {
	return until(ctx, s.leaseLimit(), func() string {
		t, since := s.Follower.Latest()
		if problem := cmp.Or(judge.Quiet(t, s.Fleet.Pods()), s.Fleet.Lingers()); problem != "" {
			return problem
		}
		if journal.Now()-since < quietFor {
			return "the table still changes"
		}
		return ""
	})
}

// leaseLimit bounds waits for leases.
func (s *Stage) leaseLimit() time.Duration { return stepLimit + 4*max(s.LeaseDuration, usualLease) }

// until waits until check returns "". Its error says what check returned last.
func until(ctx context.Context, limit time.Duration, check func() string) error {
	return await.Until(ctx, 20*time.Millisecond, limit, check)
}

// Until waits until check returns "", for two minutes at most.
func (s *Stage) Until(ctx context.Context, check func() string) error {
	return until(ctx, stepLimit, check)
}

// reconciled waits until all Websites but so many are up to date.
func (s *Stage) reconciled(ctx context.Context, limit time.Duration, but int) error {
	return await.Until(ctx, surveyPeriod, limit, func() string {
		total, behind, example, err := s.Load.Survey(ctx)
		switch {
		case err != nil:
			return err.Error()
		case behind > but:
			return fmt.Sprintf("%d of %d Websites are not reconciled, such as %s", behind, total, example)
		}
		return ""
	})
}
