package ctrlrt_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

var differentialLives = flag.Int("differential.lives", 24, "how many random lives TestAManagersLifeIsAStockOne plays")

const (
	// livesAtOnce are compared at the same time.
	livesAtOnce = 12
	// shrinkFor bounds how long lives that differ are made shorter.
	shrinkFor = 3 * time.Minute
)

// Steps of a manager's life.
const (
	anAdd           = "Add of"
	aStart          = "Start"
	aCancel         = "the context of Start ends"
	aRelease        = "release of what waits"
	aFailure        = "a runnable fails"
	aReturn         = "a runnable returns"
	aTheft          = "another takes the Lease"
	anOccupation    = "a reconcile that waits for its context"
	aHealthCheck    = "AddHealthzCheck"
	aReadyCheck     = "AddReadyzCheck"
	aMetricsHandler = "AddMetricsServerExtraHandler"
	theWebhooks     = "GetWebhookServer"
	theOptions      = "GetControllerOptions, GetLogger, GetScheme, GetConfig"
	theElection     = "Elected"
	theSync         = "WaitForCacheSync"
	aRead           = "Get"
	aWrite          = "Create"
	theProbes       = "probes"
)

// lifeStep is a call of a manager, or what happens to it.
type lifeStep struct {
	do, kind, way string
	back          int // a runnable that was added so many steps before
}

func (s lifeStep) String() string {
	switch s.do {
	case anAdd:
		return strings.TrimSpace(fmt.Sprintf("%s %s %s", s.do, s.kind, s.way))
	case aFailure, aReturn:
		return fmt.Sprintf("%s, %d steps back", s.do, s.back)
	}
	return s.do
}

// lifeScript is a manager's life.
type lifeScript struct {
	grace    time.Duration // GracefulShutdownTimeout
	anothers bool          // another one holds the Lease of the election
	unled    bool          // the member's manager has no leader election
	steps    []lifeStep
}

func (s lifeScript) String() string {
	lines := []string{fmt.Sprintf("GracefulShutdownTimeout %v, another one leads: %t, member without election: %t",
		s.grace, s.anothers, s.unled)}
	for n, step := range s.steps {
		lines = append(lines, fmt.Sprintf("%3d %v", n+1, step))
	}
	return strings.Join(lines, "\n")
}

func (s lifeScript) has(do string) bool {
	return slices.ContainsFunc(s.steps, func(s lifeStep) bool { return s.do == do })
}

// leave is the LeaveTimeout. A member cuts reconciles short 6 s before it is over, or at half of it.
func (s lifeScript) leave() time.Duration {
	if s.has(anOccupation) {
		return 6 * time.Second
	}
	return hang
}

// ordered reports whether the manager waits for all of a group before it stops the next.
func (s lifeScript) ordered() bool { return !s.has(aTheft) && (s.grace < 0 || s.grace == lifeGrace) }

// hasty reports whether the manager is told to end, or something fails, while it starts. How far its leader election
// has come by then is chance.
func (s lifeScript) hasty() bool {
	var begun, slow, cancelled, fail bool
	for _, step := range s.steps {
		if begun && !slow {
			break // it is up
		}
		switch {
		case step.do == aStart:
			begun = true
		case step.do == aCancel:
			cancelled = true
		case step.do == aRelease:
			slow = false
		case step.do == anAdd && step.kind == hasASlowCache && !begun:
			slow = true
		case step.do == anAdd && step.way == fails:
			fail = true
		}
	}
	return begun && (cancelled || fail)
}

// shorter returns the lives that lack one thing of this one.
func (s lifeScript) shorter() (out []lifeScript) {
	for n := range s.steps {
		c := s
		c.steps = slices.Delete(slices.Clone(s.steps), n, n+1)
		for at, step := range c.steps { // steps back stay the same runnable's
			if at >= n && (step.do == aFailure || step.do == aReturn) && at-step.back < n {
				c.steps[at].back--
			}
		}
		out = append(out, c)
	}
	plainer := []func(*lifeScript){
		func(c *lifeScript) { c.grace = lifeGrace },
		func(c *lifeScript) { c.anothers = false },
	}
	for _, change := range plainer {
		c := s
		if change(&c); c.String() != s.String() {
			out = append(out, c)
		}
	}
	return out
}

// randomLife returns a life that may make no sense.
func randomLife(r *rand.Rand) lifeScript {
	s := lifeScript{grace: pick(r, lifeGrace, lifeGrace, lifeGrace, -1, 0, shortGrace), anothers: r.IntN(6) == 0}
	some := func(most int) {
		for range r.IntN(most + 1) {
			s.steps = append(s.steps, randomStep(r, len(s.steps)))
		}
	}
	some(5)
	if r.IntN(12) == 0 {
		s.steps = append(s.steps, lifeStep{do: aCancel})
	}
	s.steps = append(s.steps, lifeStep{do: aStart})
	some(6)
	if r.IntN(2) == 0 {
		s.steps = append(s.steps, lifeStep{do: aCancel})
		some(4)
	}
	return s
}

func randomStep(r *rand.Rand, n int) lifeStep {
	s := lifeStep{do: pick(r, anAdd, anAdd, anAdd, anAdd, anAdd, aRelease, aFailure, aReturn, aHealthCheck, aReadyCheck,
		aMetricsHandler, theWebhooks, theOptions, theElection, theSync, aRead, aWrite, theProbes)}
	switch s.do {
	case anAdd:
		s.kind = pick(r, aFunction, aFunction, forTheLeader, forEveryone, forEveryone, warmedLeader, warmedForEveryone,
			aServer, leadersServer, hasACache, hasASlowCache)
		s.way = pick(r, runs, runs, runs, runs, returns, lingers, lingers)
		if r.IntN(16) == 0 {
			s.way = fails
		}
	case aFailure, aReturn:
		s.back = 1 + r.IntN(max(1, n))
	}
	if r.IntN(25) == 0 {
		s = lifeStep{do: aStart}
	}
	return s
}

// lifeDifference is a difference on purpose.
type lifeDifference struct {
	name string
	// is reports whether these answers to a fact differ by it.
	is func(s lifeScript, fact, stock, member string) bool
	// whole says that nothing else of such a life is compared: it goes another way.
	whole bool
	// chance says that it need not be seen: whether it comes in time is chance.
	chance bool
}

// unowned is what a write is told about an object that is not this member's now.
const unowned = "no longer owned by this member"

// lifeDifferences are all differences. docs/controller-runtime.md has them, by these names.
var lifeDifferences = []lifeDifference{
	{name: "Readiness", is: func(_ lifeScript, fact, stock, member string) bool {
		rest, has := withoutRota(member)
		return strings.HasSuffix(fact, " of readiness") && has && rest == stock
	}},
	{name: "Reads before the start", is: func(_ lifeScript, fact, stock, member string) bool {
		return strings.HasSuffix(fact, " of a ConfigMap") && stock == "the cache has not started" && member == "no error"
	}},
	{name: "The end", is: func(_ lifeScript, fact, stock, member string) bool {
		return fact == "the reconcile in flight is told to stop" &&
			strings.HasPrefix(stock, "ended: runnable 3, the probe") && member == "ended: ; told to: "
	}},
	{name: "Writes at the end", chance: true, is: func(_ lifeScript, fact, stock, member string) bool {
		return strings.HasSuffix(fact, ", "+aWrite) && stock == "no error" && member == unowned
	}},
	{name: "The lead", is: func(s lifeScript, fact, stock, member string) bool {
		return s.anothers && fact == "something was reconciled" && stock == "false" && member == "true"
	}},
	{name: "Caches", whole: true, is: func(s lifeScript, fact, stock, member string) bool {
		return s.anothers && fact == "runnable 1" && s.steps[0].kind == bareCache && stock == "never started" &&
			member == "started"
	}},
	{name: "No election, at the start", whole: true, is: func(s lifeScript, fact, stock, member string) bool {
		return s.unled && fact == "Start" && stock == "no error" && member == "need a leader, but"
	}},
	{name: "No election, later", whole: true, is: func(s lifeScript, fact, stock, member string) bool {
		return s.unled && strings.HasSuffix(fact, "Add of a function") && stock == "no error" &&
			member == "need a leader, but"
	}},
	{name: "No election, Elected", whole: true, is: func(s lifeScript, fact, stock, member string) bool {
		return s.unled && fact == "Start" && stock == "no error" && member == "Elected of the manager was called"
	}},
}

// withoutRota returns what a readiness probe of a member says, without the check of the rota. Without any check it is
// not served.
func withoutRota(probed string) (rest string, has bool) {
	for _, mark := range []string{"[+]rota ok\n", "[-]rota failed: reason withheld\n"} {
		before, after, found := strings.Cut(probed, mark)
		if !found {
			continue
		}
		if rest = before + after; !strings.Contains(rest, "check-") {
			return unserved, true
		}
		return strings.NewReplacer("500", "200", "check failed", "check passed").Replace(rest), true
	}
	return probed, false
}

// TestAManagersLifeIsAStockOne plays lives of managers, senseless ones included, on a stock manager with leader
// election and on that of a member, and compares what was seen of them: the errors of all calls, what runs after each
// step, and what had ended, or was told to, when something is told to stop. It is the same, but for lifeDifferences.
//
// A life that differs is made shorter for as long as it still differs.
//
// How far a manager has come when it is told to stop is compared, so other tests must leave it the processor's time.
func TestAManagersLifeIsAStockOne(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip("only with SLOW=1: make check WHAT=slow")
	}
	t.Parallel()
	ctrl.SetLogger(logr.Discard())
	l := &lives{t: t, namespace: controlplane.Namespace(t), seen: map[string]bool{}}
	c := adminClient(t)
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = l.namespace, present
	for _, obj := range []client.Object{secret, configMap(l.namespace, present, "1")} {
		require.NoError(t, c.Create(t.Context(), obj))
	}
	t.Logf("-differential.seed %d -differential.lives %d", *differentialSeed, *differentialLives)
	scripts := slices.Clone(fixedLives)
	for n := range *differentialLives {
		scripts = append(scripts, randomLife(rand.New(rand.NewPCG(*differentialSeed, uint64(n)))))
	}
	differing, until := l.differing(scripts), time.Now().Add(shrinkFor)
	for _, n := range differing {
		short := l.shortest(scripts[n], until)
		t.Errorf("life %d, made shorter: %v\n%s", n, short, strings.Join(l.compare(short), "\n"))
	}
	for _, d := range lifeDifferences {
		if !d.chance && !l.seen[d.name] {
			t.Errorf("no life has this difference: %s", d.name)
		}
	}
}

// lives compares lives, each with names of its own.
type lives struct {
	t         *testing.T
	namespace string
	count     atomic.Int64

	mu   sync.Mutex
	seen map[string]bool // differences by name
}

// differing returns the numbers of the lives that differ each time.
func (l *lives) differing(scripts []lifeScript) (out []int) {
	var (
		wg   sync.WaitGroup
		next atomic.Int64
	)
	for range livesAtOnce {
		wg.Go(func() {
			for n := int(next.Add(1)) - 1; n < len(scripts); n = int(next.Add(1)) - 1 {
				if l.differs(scripts[n]) {
					l.mu.Lock()
					out = append(out, n)
					l.mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(out)
	return out
}

// differs reports whether a life is another one each time. A machine that is too busy delays what has a limit.
func (l *lives) differs(s lifeScript) bool {
	var differences []string
	for range 3 {
		if differences = l.compare(s); len(differences) == 0 {
			return false
		}
		if slices.ContainsFunc(differences, func(d string) bool { return strings.Contains(d, hangs) }) {
			break // it had its time
		}
	}
	l.t.Logf("differs: %v\n%s", s, strings.Join(differences, "\n"))
	return true
}

// shortest leaves out of a life what it can do without and still differ.
func (l *lives) shortest(s lifeScript, until time.Time) lifeScript {
	for time.Now().Before(until) {
		shorter := s.shorter()
		n := slices.IndexFunc(shorter, func(s lifeScript) bool { return time.Now().Before(until) && l.differs(s) })
		if n < 0 {
			break
		}
		s = shorter[n]
	}
	return s
}

// compare plays a life twice, and returns the facts that differ.
func (l *lives) compare(s lifeScript) (out []string) {
	name := fmt.Sprintf("life-%d", l.count.Add(1))
	var (
		facts [2]map[string]string
		wg    sync.WaitGroup
		whole bool
	)
	for n, kind := range []string{"stock", "member"} {
		wg.Go(func() {
			w, err := newLifeWorld(l.t, s, l.namespace, name+"-"+kind, kind == "member")
			if err != nil {
				facts[n] = map[string]string{"the manager": err.Error()}
				return
			}
			facts[n] = w.live()
		})
	}
	wg.Wait()
	all := maps.Clone(facts[0])
	maps.Copy(all, facts[1])
	for _, fact := range slices.Sorted(maps.Keys(all)) {
		stock, member := facts[0][fact], facts[1][fact]
		if stock == member && !strings.Contains(stock, hangs) {
			continue
		}
		n := slices.IndexFunc(lifeDifferences, func(d lifeDifference) bool { return d.is(s, fact, stock, member) })
		if n < 0 {
			out = append(out, fmt.Sprintf("%s\n  stock:  %s\n  member: %s", fact, stock, member))
			continue
		}
		l.see(lifeDifferences[n].name)
		whole = whole || lifeDifferences[n].whole
	}
	if whole {
		return nil
	}
	return out
}

func (l *lives) see(difference string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[difference] = true
}

// about returns what an error is about: errors that were joined are sorted.
func about(err error) string {
	switch joined := err.(type) { //nolint:errorlint // every part is looked at
	case nil:
		return "no error"
	case interface{ Unwrap() []error }:
		return aboutAll(joined.Unwrap())
	case interface{ Errors() []error }:
		return aboutAll(joined.Errors())
	}
	var unstarted *cache.ErrCacheNotStarted
	switch {
	case errors.Is(err, errOnPurpose):
		return errOnPurpose.Error()
	case errors.As(err, &unstarted):
		return "the cache has not started"
	case apierrors.IsNotFound(err):
		return "not found"
	case apierrors.IsTimeout(err):
		return "timeout"
	}
	for _, what := range []string{"already started", "stop procedure is already engaged", "within grace period",
		"leader election lost", "healthz endpoint has already been created", "metrics endpoint has already been created",
		"duplicate path", "need a leader, but", "Elected of the manager was called", unowned} {
		if strings.Contains(err.Error(), what) {
			return what
		}
	}
	return err.Error()
}

func aboutAll(errs []error) string {
	var out []string
	for _, err := range errs {
		out = append(out, about(err))
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}
