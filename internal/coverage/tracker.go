package coverage

import (
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// Differences during a rollout end with it. A difference counts once no member has come or gone for RolloutQuiet, and
// after RolloutLongest in any case.
const (
	RolloutQuiet   = 10 * time.Minute
	RolloutLongest = time.Hour
)

// Tracker separates lasting findings from those that come from looking at different moments. A finding counts when all
// of these hold:
//
//   - it was there in every look since the first that had it;
//   - each of its members has published a new report since that look, because an old one may be outdated;
//   - for slots without a working member and for members without a report, Bounds.Recovery has passed since;
//   - for a difference between members that a rollout may have brought, no member has come or gone for RolloutQuiet, or
//     it has been there for RolloutLongest. Until then, objects of a kind that not all members shard are no finding.
//
// A Tracker must not be used concurrently.
type Tracker struct {
	bounds  Bounds
	reports map[string]renewal
	// owners holds the findings about slots and members of the last look, and objects those about objects of the last look
	// that had a census.
	owners, objects map[Finding]sight
	differing       []Finding
	again           bool // another census may decide about findings of the last one
	mixed           mixed
	// first and last are the times of the looks.
	first, last time.Duration
}

// renewal is when a report was first seen.
type renewal struct {
	serial uint64
	at     time.Duration
}

// sight is the first look at a finding.
type sight struct {
	at      time.Duration
	serials map[string]uint64
	counts  bool
}

// NewTracker returns a tracker that has not looked yet.
func NewTracker(b Bounds) *Tracker { return &Tracker{bounds: b} }

// Look compares what members hold at the monotonic time at, and returns the findings that count. If census is nil, it
// repeats the findings of the last census.
func (k *Tracker) Look(at time.Duration, t *table.Table, reports []*Report, census Digests) []Finding {
	if k.reports == nil {
		k.first = at
	}
	k.last = at
	reports = k.fresh(at, reports)
	mixed := k.mixed.look(at, t, DifferencesIn(t, reports), k.reports)
	var owners, objects []Finding
	for _, f := range Compare(t, reports, census) {
		switch {
		case f.What == Unread && k.mixed.rollout(f.Kind):
		case f.What == Differs || f.What == Unread:
			objects = append(objects, f)
		default:
			owners = append(owners, f)
		}
	}
	var counts []Finding
	k.owners, counts = k.confirm(at, k.owners, owners)
	counts = append(counts, mixed...)
	if census != nil {
		k.objects, k.differing = k.confirm(at, k.objects, objects)
		k.again = !k.again && len(k.objects) > len(k.differing)
	}
	return append(counts, k.differing...)
}

// Rollout returns the differences of the last look that do not count yet, since a rollout may have brought them.
func (k *Tracker) Rollout() []Difference { return k.mixed.pending }

// Undecided reports whether another census would now decide about findings of the last one, because the members
// concerned have renewed their reports since. It returns true only once for each regular census; findings that first
// appear in the second census wait for the next regular one.
func (k *Tracker) Undecided(reports []*Report) bool {
	serials := map[string]uint64{}
	for _, r := range reports {
		if last := k.reports[r.Member]; last.serial != r.Serial || k.last-last.at <= k.bounds.Stale {
			serials[r.Member] = r.Serial
		}
	}
	newer := false
	for f, first := range k.objects {
		serial, reports := serials[f.Members]
		if reports && serial <= first.serials[f.Members] {
			return false
		}
		newer = newer || reports
	}
	return k.again && newer
}

// Settled reports whether further looks would reveal nothing new about the time of the first look: every member has
// renewed its report since or counts as silent, and each finding is over or counts.
func (k *Tracker) Settled() bool {
	for _, r := range k.reports {
		if r.at <= k.first && k.last-r.at <= k.bounds.Stale {
			return false
		}
	}
	if k.mixed.undecided(k.first) {
		return false
	}
	for _, found := range []map[Finding]sight{k.owners, k.objects} {
		for f, first := range found {
			if (first.at <= k.first || f.What == Silent) && !first.counts {
				return false
			}
		}
	}
	return true
}

// fresh drops reports that their members have not renewed for too long.
func (k *Tracker) fresh(at time.Duration, reports []*Report) []*Report {
	now := map[string]renewal{}
	var out []*Report
	for _, r := range reports {
		last, known := k.reports[r.Member]
		if !known || last.serial != r.Serial {
			last = renewal{r.Serial, at}
		}
		now[r.Member] = last
		if at-last.at <= k.bounds.Stale {
			out = append(out, r)
		}
	}
	k.reports = now
	return out
}

// confirm returns the findings with their first sight, and the findings that count.
func (k *Tracker) confirm(at time.Duration, before map[Finding]sight,
	found []Finding,
) (now map[Finding]sight, counts []Finding) {
	now = map[Finding]sight{}
	for _, f := range found {
		key := f.Same()
		first, seen := before[key]
		if !seen {
			first = sight{at: at, serials: map[string]uint64{}}
			for _, id := range strings.Fields(f.Members) {
				first.serials[id] = k.reports[id].serial
			}
		}
		if first.counts = seen && k.lasts(f, first, at); first.counts {
			counts = append(counts, f)
		}
		now[key] = first
	}
	return now, counts
}

func (k *Tracker) lasts(f Finding, first sight, at time.Duration) bool {
	if f.What == Silent {
		return at-first.at >= k.bounds.Recovery
	}
	for id, serial := range first.serials {
		if k.reports[id].serial <= serial {
			return false
		}
	}
	return f.What != Unowned || at-first.at >= k.bounds.Recovery
}
