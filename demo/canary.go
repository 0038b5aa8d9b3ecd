package demo

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/demo/verdict"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/cli/orders"
	cliview "github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/test/journal"
)

// Canary are the options of a story of canaries: of a build whose reconciles fail for some of the objects, of one whose
// reconciles take three times as long, and of a good one. In each step of each a replica is killed.
type Canary struct {
	// Steps and Every are those of the canaries. Default 5, 20, 50 and 100 %, and 20 s.
	Steps []int
	Every time.Duration
	// Fails is for how many objects of a thousand the reconciles of the first build fail. Default 20.
	Fails int
	// BadOnly leaves the good build out, which takes longest.
	BadOnly bool
	// Limit is how long a canary may take. Default 15 minutes.
	Limit time.Duration
}

// met is the part of the objects, in percent, that a bad canary may meet before it goes back.
const met = 10

func (c *Canary) setDefaults() {
	if len(c.Steps) == 0 {
		c.Steps = []int{5, 20, 50, 100}
	}
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&c.Every, 20*time.Second)
	set(&c.Limit, 15*time.Minute)
	if c.Fails == 0 {
		c.Fails = 20
	}
}

// Trial is what became of a canary.
type Trial struct {
	Build string `json:"build"`
	// About says what the build is like. Bad: it should go back.
	About string `json:"about"`
	Bad   bool   `json:"bad"`
	// State is "back", "promoted", or how far it came. Verdict is why it went back.
	State   string `json:"state"`
	Verdict string `json:"verdict,omitempty"`
	// Step is the last one that it came to, from 1, and Seconds how long it took from its first member on.
	Step    int     `json:"step"`
	Seconds float64 `json:"seconds"`
	// Met are the Websites that its members reconciled until it went back or was promoted, of Websites that there were:
	// some go meanwhile, and others come.
	Met      int `json:"met"`
	Websites int `json:"websites"`
	// Killed are the replicas that were killed meanwhile, with the steps, from 1.
	Killed []string `json:"killed"`
}

// canaryBuild is how replicas of a build are.
type canaryBuild struct {
	name, about string
	fails, slow int
	bad         bool
}

// canaries is the story of Options.Canary.
func (e *engine) canaries(ctx, loading, later context.Context) error {
	if err := e.setUp(ctx, loading, later); err != nil {
		return err
	}
	c := e.o.Canary
	builds := []canaryBuild{
		{"v2", fmt.Sprintf("its reconciles fail for %.1f %% of the objects", float64(c.Fails)/10), c.Fails, 1, true},
		{"v3", "its reconciles take three times as long", 0, 3, true},
		{"v4", "a good one", 0, 1, false},
	}
	if c.BadOnly {
		builds = builds[:2]
	}
	for _, b := range builds {
		if err := e.phase(ctx, b.name, func(ctx context.Context, _ *phaseRun) error { return e.canary(ctx, b) }); err != nil {
			return err
		}
	}
	return nil
}

// order gives an order, as the command rota does.
func (e *engine) order(ctx context.Context, change func(*table.Table) error) error {
	kube, err := store.NewKubernetes(e.cluster.Config, store.Options{
		Namespace: rotaNamespace, Name: rotaName, Instance: "rota-demo",
	})
	if err != nil {
		return err
	}
	defer kube.Close()
	reader, err := cliview.NewReader(e.cluster.Config, rotaNamespace, rotaName)
	if err != nil {
		return err
	}
	defer reader.Close()
	_, _, err = orders.Give(ctx, kube, reader.Told, change)
	return err
}

// canary starts a canary and its replicas, follows it to its end, and takes the replicas away that are not needed any
// more.
func (e *engine) canary(ctx context.Context, b canaryBuild) error {
	c := e.o.Canary
	e.view.title(fmt.Sprintf("a canary of build %s: %s", b.name, b.about))
	old := e.live()
	by := orders.By{At: time.Now(), User: "the demo"}
	err := e.order(ctx, func(t *table.Table) error {
		return orders.StartCanary(t, orders.Canary{Build: b.name, Steps: c.Steps, Every: c.Every, Expect: true}, by)
	})
	if err != nil {
		return err
	}
	var fresh []*replica
	start := func() error {
		p, err := e.startCanary(b)
		fresh = append(fresh, p)
		return err
	}
	for range 2 {
		if err := start(); err != nil {
			return err
		}
	}
	t := Trial{Build: b.name, About: b.about, Bad: b.bad}
	begun, err := e.followCanary(ctx, &t, &fresh, &old, start)
	if err != nil {
		return err
	}
	now := journal.Now()
	t.Seconds = (now - begun).Seconds()
	if t.Met, err = meetings(fresh, begun, now); err != nil {
		return err
	}
	if t.Websites, err = meetings(e.all(), begun, now); err != nil {
		return err
	}
	t.Websites = max(t.Websites, len(e.load.Sites()))
	e.mu.Lock()
	e.trials = append(e.trials, t)
	e.mu.Unlock()
	e.view.log("%s: %s after %.0f s, in step %d; it met %d of %d Websites. %s", b.name, t.State, t.Seconds, t.Step, t.Met,
		t.Websites, t.Verdict)
	gone := fresh
	if t.State == table.CanaryPromoted.String() {
		gone = old
		for len(running(fresh)) < len(running(old)) { // as many as there were
			if err := start(); err != nil {
				return err
			}
		}
	}
	for _, p := range running(gone) {
		if err := p.End(syscall.SIGTERM); err != nil {
			return err
		}
		if err := until(ctx, stepLimit, p.Lingers); err != nil {
			return err
		}
	}
	return nil
}

// startCanary starts a replica of a canary's build.
func (e *engine) startCanary(b canaryBuild) (*replica, error) {
	return e.startPod(e.nextPod(), b.name, e.o.Command, func(c *operatorConfig) { c.Fails, c.Slow = b.fails, b.slow })
}

func running(all []*replica) []*replica {
	return slices.DeleteFunc(slices.Clone(all), func(p *replica) bool { return !p.Running() })
}

// followCanary waits until a canary is over. In each step it kills a replica, one of the canary's and one of the others
// in turn, and starts another one in its place. It returns when the canary began.
func (e *engine) followCanary(
	ctx context.Context, t *Trial, fresh, old *[]*replica, start func() error,
) (begun time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.o.Canary.Limit, fmt.Errorf("no end of the canary of build %s after %v",
		t.Build, e.o.Canary.Limit))
	defer cancel()
	killed := 0 // in so many steps
	for {
		now, _ := e.follow.Latest()
		if now != nil && now.Canary.Build == t.Build {
			c := &now.Canary
			t.Step, t.State, t.Verdict = c.Step+1, c.State.String(), c.Verdict
			switch {
			case c.State != table.CanaryRuns:
				return begun, nil
			case c.Began != 0 && begun == 0:
				begun = journal.Now()
			}
			if c.Began != 0 && killed < t.Step && e.hasIts(now) {
				if err := e.killInStep(ctx, t, fresh, old, start); err != nil {
					return begun, err
				}
				killed = t.Step
			}
		}
		if err := await.Sleep(ctx, 50*time.Millisecond); err != nil {
			return begun, errors.Join(err, context.Cause(ctx))
		}
	}
}

// hasIts says that the canary's members own its slots, and nothing moves.
func (e *engine) hasIts(t *table.Table) bool {
	set := t.CanarySlots()
	for _, r := range t.Runs {
		owner, _ := t.Member(r.Owner)
		if r.Next != "" || r.Unsettled || t.Apart(owner) != set.Has(r.Slots.First) && !t.IsDuty(r.Slots.First) {
			return false
		}
	}
	return true
}

// killInStep kills a replica in a canary's step, and starts another one in its place.
func (e *engine) killInStep(ctx context.Context, t *Trial, fresh, old *[]*replica, start func() error) error {
	run := &phaseRun{name: fmt.Sprintf("step %d of %s", t.Step, t.Build), sites: e.load.Sites()}
	run.begin()
	victim := running(*fresh)[0]
	if t.Step%2 == 0 {
		victim = running(*old)[0]
	}
	e.view.log("step %d: %s, of build %s, is killed", t.Step, victim.pod, victim.build)
	t.Killed = append(t.Killed, fmt.Sprintf("%d: %s of %s", t.Step, victim.pod, victim.build))
	if err := e.kill(victim, run); err != nil {
		return err
	}
	e.mu.Lock()
	e.kills = append(e.kills, run)
	e.mu.Unlock()
	err := until(ctx, stepLimit, func() string {
		now, _ := e.follow.Latest()
		if now != nil && slices.ContainsFunc(now.Members, func(m table.Member) bool { return m.Pod == victim.pod }) {
			return victim.pod + " is still a member"
		}
		return ""
	})
	run.finish()
	if err != nil {
		return err
	}
	if victim.build == t.Build {
		return start()
	}
	p, err := e.startAs(victim.build, e.o.Command)
	*old = append(*old, p)
	return err
}

// meetings counts the Websites that replicas reconciled in a time.
func meetings(all []*replica, from, until time.Duration) (int, error) {
	seen := map[types.UID]bool{}
	for _, p := range all {
		list, err := p.reconciles()
		if err != nil {
			return 0, err
		}
		for _, r := range list {
			if r.UID != "" && r.Start >= from && r.Start <= until {
				seen[types.UID(r.UID)] = true
			}
		}
	}
	return len(seen), nil
}

// failing says that reconciles of an object fail with a build of which they do for so many of a thousand.
func failing(key types.NamespacedName, thousandths int) bool {
	h := fnv.New32a()
	_, _ = io.WriteString(h, key.String())
	return int(h.Sum32()%1000) < thousandths
}

// errBadBuild is the error of such a reconcile.
var errBadBuild = errors.New("this build cannot do it")

// canaryVerdicts say whether each canary came to what it should.
func (r *Report) canaryVerdicts() (out []verdict.Verdict) {
	for _, t := range r.Trials {
		good := t.State == table.CanaryPromoted.String()
		text := fmt.Sprintf("build %s (%s) %s in step %d, after %.0f s", t.Build, t.About, t.came(), t.Step, t.Seconds)
		if t.Bad {
			part := 100 * float64(t.Met) / float64(max(t.Websites, 1))
			text += fmt.Sprintf("; %.1f %% of the Websites met it, of at most %d %%", part, met)
			good = t.State == table.CanaryBack.String() && part < met
		}
		out = append(out, verdict.Of(good, text, text))
	}
	return out
}

// came says what became of the canary.
func (t *Trial) came() string {
	switch t.State {
	case table.CanaryBack.String():
		return "went back by itself"
	case table.CanaryPromoted.String():
		return "was promoted by itself"
	}
	return "came to no end"
}

// writeTrials writes what each canary was judged by, and who was killed meanwhile.
func (r *Report) writeTrials(b *strings.Builder) {
	for _, t := range r.Trials {
		fmt.Fprintf(b, "canary of build %s: %s in step %d", t.Build, t.came(), t.Step)
		if t.Verdict != "" {
			b.WriteString(": " + t.Verdict)
		}
		fmt.Fprintf(b, "; killed in steps: %s\n", strings.Join(t.Killed, ", "))
	}
	if len(r.Trials) > 0 {
		b.WriteByte('\n')
	}
}
