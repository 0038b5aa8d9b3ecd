// Package report publishes what a member holds and looks at the reports of other members (rule R14). Before a member
// joins, it checks whether the member can work together with the others. While the member has the scrub duty, it checks
// whether every object is held by exactly one member.
//
// Package coverage defines the reports and compares them. This package decides when that happens.
package report

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/group"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// ScrubDuty is the name of the scrub duty, which compares what members hold with the existing objects.
const ScrubDuty = table.OwnDuties + "scrub"

// Store stores the reports of all members. A *coverage.Reports implements it.
type Store interface {
	Publish(ctx context.Context, report *coverage.Report, lease types.UID) error
	Withdraw(ctx context.Context, member string) error
	Read(ctx context.Context) ([]*coverage.Report, error)
	ReadUnlabelled(ctx context.Context) ([]*coverage.Report, error)
	ReadAll(ctx context.Context) (map[string][]*coverage.Report, error)
}

// Member is an incarnation of this member, with a context that ends with it. A *replica.Replica implements it.
type Member interface {
	Context() context.Context
	ID() string
	LeaseUID() string
	Notify(n member.Notify)
}

// Account describes what a member holds.
type Account interface {
	// Duties returns the rota's own duties that the account needs.
	Duties() []string
	// Run observes the existing objects until the incarnation ends.
	Run(m Member)
	// Report returns what the member holds now, except handovers. setup holds the member's settings.
	Report(id string, setup map[string]string) *coverage.Report
}

// Env is the environment of a Reporter.
type Env struct {
	Rota types.NamespacedName
	// Config provides the rota's durations. Its identity is not used.
	Config member.Config
	// Period is the time between two lists of all objects. If 0, it is chosen so that lists take 1/1000 of the time.
	Period time.Duration
	Group  *group.Group // may be nil
	// Patience is the time between two log lines about what a member waits for before it joins, and how long it tries to
	// read reports then. Again is the time between two events about the same.
	Patience, Again time.Duration
	Log             logr.Logger
	Now             func() time.Duration // monotonic
	Store           func() Store
	Table           func() *table.Table
	// Compares reports whether this member has the scrub duty.
	Compares func() bool
	// Census lists the existing objects. It also returns the kinds that could not be listed.
	Census func(ctx context.Context) (coverage.Digests, map[schema.GroupKind]error, error)
	// Failed reports an error that prevents reporting or comparing.
	Failed func(what string, err error)
	Emit   func(ctx context.Context, n member.Notify)
}

// Reporter publishes and compares reports. Create it with New. Its methods may be called concurrently.
type Reporter struct {
	env       Env
	published published
	scrubbed  scrubbed
	gaps      gaps
	unlike    unlike
}

// New returns a Reporter that has not published anything.
func New(env Env) *Reporter { return &Reporter{env: env} }

// withdrawTimeout bounds a member's last request.
const withdrawTimeout = 2 * time.Second

// A finding needs two looks with a new report of the member between them (coverage.Tracker). An unchanged report is
// published again every half lease, so that a finding takes less than one and a half leases.
func reportPeriod(lease time.Duration) time.Duration  { return lease / 4 }
func renewalPeriod(lease time.Duration) time.Duration { return lease / 2 }
func lookPeriod(lease time.Duration) time.Duration    { return lease * 7 / 20 }

// published describes the last report of this member.
type published struct {
	mu    sync.Mutex
	since time.Duration // when the last report was published, or the start
	bytes int
	fold  int
}

func (p *published) set(at time.Duration, bytes, fold int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.bytes, p.fold = at, bytes, fold
}

func (p *published) get() (at time.Duration, bytes, fold int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.since, p.bytes, p.fold
}

// Published returns when the last report was published, its size, and how many slots share a digest. bytes is 0 before
// the first report, and fold is 0 until there was something to publish.
func (r *Reporter) Published() (at time.Duration, bytes, fold int) { return r.published.get() }

// firstReport is how often a member tries to publish its first report. Dispatchers hand out nothing before that.
const firstReport = 250 * time.Millisecond

// Publish publishes the report until the incarnation ends, and then withdraws it. A changed report is published every
// reportPeriod at most, an unchanged one every renewalPeriod.
func (r *Reporter) Publish(m Member, report func() *coverage.Report) {
	env, store := r.env, r.env.Store()
	period := reportPeriod(env.Config.LeaseDuration)
	tick := time.NewTicker(min(firstReport, period))
	defer tick.Stop()
	r.published.set(env.Now(), 0, 1)
	var last map[string]string // without its serial
	var serial uint64
	var at time.Duration
	denied := false
	for {
		select {
		case <-tick.C:
		case <-m.Context().Done():
			if last != nil {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(m.Context()), withdrawTimeout)
				defer cancel()
				_ = store.Withdraw(ctx, m.ID()) // if this fails, the report is deleted with the Lease that owns it
			}
			return
		}
		lease := m.LeaseUID()
		if lease == "" {
			continue
		}
		report := report()
		text, err := report.Encode()
		if err == nil && coverage.Alike(text, last) && env.Now()-at < renewalPeriod(env.Config.LeaseDuration) {
			continue
		}
		if err == nil {
			serial++
			report.Serial = serial
			err = store.Publish(m.Context(), report, types.UID(lease))
		}
		if err != nil {
			if m.Context().Err() == nil && !denied {
				// A new API server may refuse at first what it allows a moment later.
				env.Failed("Cannot report what this member holds, so it cannot be checked; trying again", err)
			}
			denied = true
			continue
		}
		fold, _ := strconv.Atoi(text["fold"])
		if _, _, before := r.published.get(); fold > before {
			env.Log.Info("There are so many kinds and slots that this member's report sums up several slots in one figure: "+
				"what is found will be about all of them",
				"slots", fold, "kinds", len(report.Digests), "bytes", coverage.Size(text))
		}
		r.published.set(env.Now(), coverage.Size(text), fold)
		if last == nil {
			tick.Reset(period)
		}
		last, denied, at = text, false, env.Now()
	}
}
