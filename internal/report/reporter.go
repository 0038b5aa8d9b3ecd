// Package report has a member tell the others what it holds, and look at what they tell (rule R14): before it joins,
// whether it can work together with them, and while it has the scrub duty, whether every object is held by one member.
//
// Package coverage has the reports and how they are compared. This package decides when.
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

// ScrubDuty is the name of the scrub duty: comparing what members hold with what there is.
const ScrubDuty = table.OwnDuties + "scrub"

// Store keeps the reports of all members; coverage.Reports implements it.
type Store interface {
	Publish(ctx context.Context, report *coverage.Report, lease types.UID) error
	Withdraw(ctx context.Context, member string) error
	Read(ctx context.Context) ([]*coverage.Report, error)
	ReadUnlabelled(ctx context.Context) ([]*coverage.Report, error)
	ReadAll(ctx context.Context) (map[string][]*coverage.Report, error)
}

// Member is an incarnation of this member; replica.Replica implements it. Its context ends with it.
type Member interface {
	Context() context.Context
	ID() string
	LeaseUID() string
	Notify(n member.Notify)
}

// Account is what a member knows of what it holds.
type Account interface {
	// Duties are those of the rota's own duties that have to do with it.
	Duties() []string
	// Run looks at what there is until the incarnation ends.
	Run(m Member)
	// Report says what the member holds now, but for handovers. setup is what is set up in it.
	Report(id string, setup map[string]string) *coverage.Report
}

// Env is what a Reporter works with.
type Env struct {
	Rota types.NamespacedName
	// Config has the durations of the rota. Its identity is not used.
	Config member.Config
	// Period is the time between two lists of all objects; 0: so long that they take 1/1000 of the time.
	Period time.Duration
	Group  *group.Group // nil: there is none
	// Patience is the time between two log lines about what a member waits for before it joins, and how long it tries to
	// read reports then. Again is the time between two events about it.
	Patience, Again time.Duration
	Log             logr.Logger
	Now             func() time.Duration // monotonic
	Store           func() Store
	Table           func() *table.Table
	// Compares says whether this member has the scrub duty.
	Compares func() bool
	// Census lists what there is. It returns the kinds that could not be listed.
	Census func(ctx context.Context) (coverage.Digests, map[schema.GroupKind]error, error)
	// Lacks tells of an error because of which something is not reported or compared.
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

// New returns a Reporter that has published nothing.
func New(env Env) *Reporter { return &Reporter{env: env} }

// withdrawTimeout bounds a member's last request.
const withdrawTimeout = 2 * time.Second

// A finding needs two looks, and a new report of the member between them (coverage.Tracker). An unchanged report is
// published again every half lease, so that this takes less than one and a half leases.
func reportPeriod(lease time.Duration) time.Duration  { return lease / 4 }
func renewalPeriod(lease time.Duration) time.Duration { return lease / 2 }
func lookPeriod(lease time.Duration) time.Duration    { return lease * 7 / 20 }

// published describes the last report of this member.
type published struct {
	mu    sync.Mutex
	since time.Duration // of the last report, or of the start
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

// Published describes the last report: when it was published, its bytes, and how many slots share a digest. bytes is 0
// before the first one, and fold before there was anything to publish.
func (r *Reporter) Published() (at time.Duration, bytes, fold int) { return r.published.get() }

// firstReport is how often a member tries to publish its first report. Dispatchers hand out nothing before.
const firstReport = 250 * time.Millisecond

// Publish publishes the report until the incarnation ends, and then withdraws it. A changed report is published every
// reportPeriod at most, one that is alike every renewalPeriod.
func (r *Reporter) Publish(m Member, report func() *coverage.Report) {
	env, store := r.env, r.env.Store()
	period := reportPeriod(env.Config.LeaseDuration)
	tick := time.NewTicker(min(firstReport, period))
	defer tick.Stop()
	r.published.set(env.Now(), 0, 1)
	var last map[string]string // but for its serial
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
				_ = store.Withdraw(ctx, m.ID()) // if it fails, the report goes with the Lease that owns it
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
				// A new API server may refuse what it allows a moment later.
				env.Failed("Cannot tell what this member holds, so that nobody can check it; trying again", err)
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
