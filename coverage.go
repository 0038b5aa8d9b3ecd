package rota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

const (
	// scrubName is the name of the scrub duty: comparing what members hold with what there is.
	scrubName = table.OwnDuties + "scrub"
	// scrubShare limits the lists of all objects to 1/1000 of the time of the member with the duty. They cost the API
	// server about the same. The longest time between two lists is scrubLatest.
	scrubShare  = 1000
	scrubLatest = 10 * time.Minute
	// scrubFirst bounds the time from getting the duty to the first list.
	scrubFirst = time.Minute
	// scrubNotices is how many findings are reported one by one.
	scrubNotices = 3
	// withdrawTimeout bounds a member's last request.
	withdrawTimeout = 2 * time.Second
)

// reports stores the reports of all members; coverage.Reports implements it.
type reports interface {
	Publish(ctx context.Context, report *coverage.Report, lease types.UID) error
	Withdraw(ctx context.Context, member string) error
	Read(ctx context.Context) ([]*coverage.Report, error)
	ReadAll(ctx context.Context) (map[string][]*coverage.Report, error)
}

// scrubbed are the results of the last scrub of this member.
type scrubbed struct {
	mu       sync.Mutex
	scrubs   uint64
	findings []coverage.Finding
	uneven   imbalance
	on       bool // this member has the duty and has compared at least once
}

func (s *scrubbed) look(findings []coverage.Finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.findings, s.on = findings, true
	s.scrubs++
}

func (s *scrubbed) weigh(load imbalance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uneven = load
}

func (s *scrubbed) load() imbalance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uneven
}

func (s *scrubbed) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.findings, s.on = nil, false
}

func (s *scrubbed) get() (findings []coverage.Finding, scrubs uint64, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.findings, s.scrubs, s.on
}

// account is what a member knows of what it holds, for the others (rule R14).
type account interface {
	// duties are those of the rota's own duties that have to do with it.
	duties() []string
	// run looks at what there is until the incarnation ends.
	run(i *incarnation)
	// report says what this member holds now, but for handovers.
	report(i *incarnation) *coverage.Report
}

var (
	_ account = holdings{}
	_ account = (*expectation)(nil)
)

// holdings is the account of a member that works.
type holdings struct{}

func (holdings) duties() []string { return []string{scrubName} }

func (holdings) run(i *incarnation) { i.scrub() }

func (holdings) report(i *incarnation) *coverage.Report {
	r := i.rota.outline()
	since := i.rota.controllers.Oldest()
	r.Health = i.rota.controllers.Health()
	now := i.rota.now()
	for s, at := range since {
		if age := now - at; age > time.Second && r.Open.Has(s) {
			r.Waiting[s] = age
		}
	}
	return r
}

// report returns the account's report, with the handovers.
func (i *incarnation) report() *coverage.Report {
	r := i.rota.account.report(i)
	r.Handovers = i.moves.Handovers()
	if waits := i.Waiting(); waits != "" {
		r.Waits = waits
	} else { // otherwise nothing goes on, for as long as another one leads
		r.Moving = i.moves.Ages(i.rota.now())
	}
	return r
}

// outline is a report of holdings without the keys that wait for workers.
func (r *Rota) outline() *coverage.Report {
	open := r.hashes(r.gate.Working())
	out := &coverage.Report{
		Member: r.cfg.Self.ID, Open: open, Digests: r.share.Digest(open),
		Owners: map[schema.GroupKind]map[schema.GroupKind]bool{}, Waiting: map[slot.Slot]time.Duration{}, Setup: r.setup(),
		Selections: r.share.Selections(),
	}
	for kind := range out.Digests {
		if owners := r.share.Owners(kind); owners != nil {
			out.Owners[kind] = owners
		}
	}
	return out
}

// setup returns this member's settings for its report.
func (r *Rota) setup() map[string]string {
	out := map[string]string{
		coverage.SettingLease: r.cfg.LeaseDuration.String(), coverage.SettingDeadline: r.cfg.RenewDeadline.String(),
		coverage.SettingRetry: r.cfg.RetryPeriod.String(), coverage.SettingWrite: r.cfg.WriteTimeout.String(),
		coverage.SettingFence: r.cfg.FenceDelay.String(), coverage.SettingDelivery: r.share.Delivery().String(),
		coverage.SettingLabel: strconv.FormatBool(r.opts.Label),
	}
	if workload := r.opts.Identity.Workload; workload != "" {
		out[coverage.SettingWorkload] = workload
	}
	if lease := r.opts.electionLease(); lease.Name != "" && !r.opts.Solo {
		out[coverage.SettingElection] = lease.String()
	}
	r.announceGroup(out)
	if kinds := r.keeper.Kinds(); len(kinds) > 0 {
		out[coverage.SettingDispatched] = strings.Join(slices.Sorted(slices.Values(kinds)), ",")
	}
	if address := r.keeper.Address(); address != "" {
		out[coverage.SettingDispatcher] = address
	}
	return out
}

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

// firstReport is how often a member tries to publish its first report. Dispatchers hand out nothing before.
const firstReport = 250 * time.Millisecond

// lacks logs an error of the comparison, or tells of the missing permission that it is about. Before the member has
// joined, a missing permission would end it, and this one is not worth that.
func (i *incarnation) lacks(what string, err error) {
	if !i.rota.state.HasJoined() || !i.rota.refused(what, err) {
		i.rota.log.Error(err, what)
	}
}

// publish publishes the report until the incarnation ends, and then withdraws it. A changed report is published every
// reportPeriod at most, an unchanged one every renewalPeriod.
func (i *incarnation) publish() {
	period := reportPeriod(i.rota.cfg.LeaseDuration)
	tick := time.NewTicker(min(firstReport, period))
	defer tick.Stop()
	i.rota.published.set(i.rota.now(), 0, 1)
	var last map[string]string // but for its serial
	var serial uint64
	var at time.Duration
	denied := false
	for {
		select {
		case <-tick.C:
		case <-i.Context().Done():
			if last != nil {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(i.Context()), withdrawTimeout)
				defer cancel()
				_ = i.rota.reports.Withdraw(ctx, i.ID()) // if it fails, the report goes with the Lease that owns it
			}
			return
		}
		lease := i.LeaseUID()
		if lease == "" {
			continue
		}
		report := i.report()
		text, err := report.Encode()
		if err == nil && maps.Equal(text, last) && i.rota.now()-at < renewalPeriod(i.rota.cfg.LeaseDuration) {
			continue
		}
		if err == nil {
			serial++
			report.Serial = serial
			err = i.rota.reports.Publish(i.Context(), report, types.UID(lease))
		}
		if err != nil {
			if i.Context().Err() == nil && !denied {
				// A new API server may refuse what it allows a moment later.
				i.lacks("Cannot tell what this member holds, so that nobody can check it; trying again", err)
			}
			denied = true
			continue
		}
		fold, _ := strconv.Atoi(text["fold"])
		if _, _, before := i.rota.published.get(); fold > before {
			i.rota.log.Info("There are so many kinds and slots that this member's report sums up several slots in one figure: "+
				"what is found will be about all of them",
				"slots", fold, "kinds", len(report.Digests), "bytes", coverage.Size(text))
		}
		i.rota.published.set(i.rota.now(), coverage.Size(text), fold)
		if last == nil {
			tick.Reset(period)
		}
		last, denied, at = text, false, i.rota.now()
	}
}

// scrub compares what members hold with the table, and from time to time with what there is, while this member has the
// duty. It reports what is wrong.
func (i *incarnation) scrub() {
	// Not at once: members that come and go list enough.
	first := func() scrubber {
		bounds := coverage.BoundsOf(i.rota.cfg.LeaseDuration, i.rota.cfg.FenceDelay)
		return scrubber{tracker: coverage.NewTracker(bounds), due: i.rota.now() + i.scrubPeriod(scrubFirst/scrubShare)}
	}
	s := first()
	tick := time.NewTicker(lookPeriod(i.rota.cfg.LeaseDuration))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-i.Context().Done():
			i.rota.scrubbed.end()
			i.rota.gaps.end()
			return
		}
		if !i.rota.doesOwn(scrubName) {
			i.rota.scrubbed.end()
			i.rota.gaps.end()
			s = first()
			continue
		}
		i.compareGroups()
		findings, err := i.compare(&s)
		if err != nil {
			if i.Context().Err() == nil && !s.failing {
				i.lacks("Cannot compare what members hold with what there is; trying again", err)
			}
			s.failing = true
			continue
		}
		s.failing = false
		i.rota.scrubbed.look(findings)
		i.tellFindings(findings, &s)
	}
}

// scrubber is the state of a member's comparisons.
type scrubber struct {
	tracker *coverage.Tracker
	due     time.Duration // of the next list of all objects
	told    map[coverage.Finding]bool
	failing bool
	// failed are the kinds that could not be listed last time, unlisted those of the last two times.
	failed   map[schema.GroupKind]error
	unlisted []coverage.Finding
}

// both returns findings about the kinds in both maps.
func both(before, now map[schema.GroupKind]error) []coverage.Finding {
	var out []coverage.Finding
	for kind := range now {
		if before[kind] != nil {
			out = append(out, coverage.Finding{What: coverage.Unlisted, Kind: kind})
		}
	}
	return out
}

// compare returns the findings that count.
func (i *incarnation) compare(s *scrubber) ([]coverage.Finding, error) {
	t := i.rota.tableOf()
	if t.Slots == 0 {
		return nil, errors.New("there is no table")
	}
	reports, err := i.rota.reports.Read(i.Context())
	if len(reports) == 0 && err != nil {
		return nil, err
	}
	if err != nil {
		i.rota.log.Error(err, "Cannot read all reports of what members hold")
	}
	i.rota.scrubbed.weigh(imbalanceOf(t, reports))
	census := coverage.Digests(nil)
	if begun := i.rota.now(); begun >= s.due || s.tracker.Undecided(reports) {
		var failed map[schema.GroupKind]error
		census, failed, err = i.rota.share.Census(i.Context())
		s.due = i.rota.now() + i.scrubPeriod(i.rota.now()-begun)
		if err != nil {
			return nil, err
		}
		for kind, err := range failed {
			i.rota.log.Error(err, "Cannot list what there is, to compare it with what members hold; trying again", "kind",
				kind.String(), "after", (s.due - i.rota.now()).String())
		}
		s.unlisted, s.failed = both(s.failed, failed), failed
	}
	return append(s.tracker.Look(i.rota.now(), t, reports, census), s.unlisted...), nil
}

// scrubPeriod returns the time to the next lists, by how long the last ones took.
func (i *incarnation) scrubPeriod(took time.Duration) time.Duration {
	if i.rota.opts.ScrubPeriod > 0 {
		return i.rota.opts.ScrubPeriod
	}
	return min(scrubShare*took, scrubLatest)
}

// tellFindings reports new findings.
func (i *incarnation) tellFindings(findings []coverage.Finding, s *scrubber) {
	now := map[coverage.Finding]bool{}
	fresh := 0
	for _, f := range findings {
		same := f.Same()
		now[same] = true
		if s.told[same] {
			continue
		}
		if fresh++; fresh <= scrubNotices {
			notice := member.Notify{Reason: "Coverage", Warning: true, Message: f.String()}
			if f.What == coverage.Mixed {
				notice.Reason = "SetupDiffers"
			}
			i.Notify(notice)
		}
	}
	if fresh > scrubNotices {
		i.Notify(member.Notify{Reason: "Coverage", Warning: true, Message: fmt.Sprintf(
			"%d more findings of that sort; `rota verify -n %s %s` lists them", fresh-scrubNotices, i.rota.opts.Namespace,
			i.rota.opts.Name)})
	}
	s.told = now
}
