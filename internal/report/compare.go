package report

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/member"
)

const (
	// Lists of all objects take at most 1/scrubShare of the time of the member with the duty, and about the same of the
	// API server's. The longest time between two lists is scrubLatest.
	scrubShare  = 1000
	scrubLatest = 10 * time.Minute
	// scrubFirst bounds the time from getting the duty to the first list.
	scrubFirst = time.Minute
	// scrubNotices is how many findings are reported individually.
	scrubNotices = 3
)

// scrubbed holds the results of this member's last comparison.
type scrubbed struct {
	mu       sync.Mutex
	scrubs   uint64
	findings []coverage.Finding
	uneven   Imbalance
	on       bool // this member has the duty and has compared at least once
}

func (s *scrubbed) look(findings []coverage.Finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.findings, s.on = findings, true
	s.scrubs++
}

func (s *scrubbed) weigh(load Imbalance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uneven = load
}

func (s *scrubbed) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.findings, s.on = nil, false
}

// Findings returns the findings of the last comparison and the number of comparisons. on is false while this member
// does not compare.
func (r *Reporter) Findings() (findings []coverage.Finding, scrubs uint64, on bool) {
	s := &r.scrubbed
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.findings, s.scrubs, s.on
}

// Imbalance returns the imbalance found by the last comparison.
func (r *Reporter) Imbalance() Imbalance {
	r.scrubbed.mu.Lock()
	defer r.scrubbed.mu.Unlock()
	return r.scrubbed.uneven
}

// Compare compares, while this member has the scrub duty, what members hold with the table and from time to time with
// the existing objects. It reports findings. It returns when the incarnation ends.
func (r *Reporter) Compare(m Member) {
	env := r.env
	// Not at once: members that come and go list enough already.
	first := func() scrubber {
		bounds := coverage.BoundsOf(env.Config.LeaseDuration, env.Config.FenceDelay)
		return scrubber{tracker: coverage.NewTracker(bounds), due: env.Now() + r.period(scrubFirst/scrubShare)}
	}
	s := first()
	tick := time.NewTicker(lookPeriod(env.Config.LeaseDuration))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-m.Context().Done():
			r.end()
			return
		}
		if !env.Compares() {
			r.end()
			s = first()
			continue
		}
		r.compareGroups(m)
		findings, err := r.compare(m, &s)
		if err != nil {
			if m.Context().Err() == nil && !s.failing {
				env.Failed("Cannot compare what members hold with what exists; trying again", err)
			}
			s.failing = true
			continue
		}
		s.failing = false
		r.scrubbed.look(findings)
		r.publish(m, findings, &s)
	}
}

// end drops the findings: another member compares, or none.
func (r *Reporter) end() {
	r.scrubbed.end()
	r.gaps.end()
}

// scrubber is the state of a member's comparisons.
type scrubber struct {
	tracker  *coverage.Tracker
	due      time.Duration // when all objects are listed next
	reported map[coverage.Finding]bool
	failing  bool
	// failed holds the kinds that could not be listed last time, and unlisted the findings about kinds that failed twice.
	failed   map[schema.GroupKind]error
	unlisted []coverage.Finding
}

// both returns findings for the kinds in both maps.
func both(before, now map[schema.GroupKind]error) []coverage.Finding {
	var out []coverage.Finding
	for kind := range now {
		if before[kind] != nil {
			out = append(out, coverage.Finding{What: coverage.Unlisted, Kind: kind})
		}
	}
	return out
}

// compare returns the confirmed findings.
func (r *Reporter) compare(m Member, s *scrubber) ([]coverage.Finding, error) {
	env := r.env
	t := env.Table()
	if t.Slots == 0 {
		return nil, errors.New("there is no table")
	}
	reports, err := env.Store().Read(m.Context())
	if len(reports) == 0 && err != nil {
		return nil, err
	}
	if err != nil {
		env.Log.Error(err, "Cannot read all reports of what members hold")
	}
	r.scrubbed.weigh(imbalanceOf(t, reports))
	census := coverage.Digests(nil)
	if begun := env.Now(); begun >= s.due || s.tracker.Undecided(reports) {
		var failed map[schema.GroupKind]error
		census, failed, err = env.Census(m.Context())
		s.due = env.Now() + r.period(env.Now()-begun)
		if err != nil {
			return nil, err
		}
		for kind, err := range failed {
			env.Log.Error(err, "Cannot list the objects to compare them with what members hold; trying again", "kind",
				kind.String(), "after", (s.due - env.Now()).String())
		}
		s.unlisted, s.failed = both(s.failed, failed), failed
	}
	return append(s.tracker.Look(env.Now(), t, reports, census), s.unlisted...), nil
}

// period returns the time to the next lists, given how long the last ones took.
func (r *Reporter) period(took time.Duration) time.Duration {
	if r.env.Period > 0 {
		return r.env.Period
	}
	return min(scrubShare*took, scrubLatest)
}

// publish reports new findings.
func (r *Reporter) publish(m Member, findings []coverage.Finding, s *scrubber) {
	now := map[coverage.Finding]bool{}
	fresh := 0
	for _, f := range findings {
		same := f.Same()
		now[same] = true
		if s.reported[same] {
			continue
		}
		if fresh++; fresh <= scrubNotices {
			notice := member.Notify{Reason: "Coverage", Warning: true, Message: f.String()}
			if f.What == coverage.Mixed {
				notice.Reason = "SetupDiffers"
			}
			m.Notify(notice)
		}
	}
	if fresh > scrubNotices {
		m.Notify(member.Notify{Reason: "Coverage", Warning: true, Message: fmt.Sprintf(
			"%d more findings of that kind; `rota verify -n %s %s` lists them", fresh-scrubNotices, r.env.Rota.Namespace,
			r.env.Rota.Name)})
	}
	s.reported = now
}
