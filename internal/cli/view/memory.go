package view

import (
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/slot"
)

// memory holds a Reader's earlier observations and their times, by this machine's monotonic clock.
type memory struct {
	moves  map[Move]time.Time
	closed map[Closure]time.Time
	// leases maps holders to their Leases as of listed.
	leases map[string]sighting
	listed listing
	// serials are the serials of the members' reports at the last read.
	serials map[string]uint64
}

// Closure is a slot that its owner reports closed although it should be open.
type Closure struct {
	Slot  slot.Slot
	Owner string
	Epoch uint64 // at which Owner got the slot
}

// Closed returns the slots that their owners report closed although nothing moves, and since when. Slots in before keep
// their times.
func (r *Rota) Closed(before map[Closure]time.Time) map[Closure]time.Time {
	closed := map[Closure]time.Time{}
	for _, run := range r.Runs {
		report := r.Reports[run.Owner]
		if report == nil || report.Waits != "" || run.Next != "" || run.Activating {
			continue
		}
		shut := slot.SetOf(slot.Range{First: slot.Slot(run.First), Last: slot.Slot(run.Last)}).Minus(report.Open)
		for _, s := range shut.Slots() {
			c := Closure{s, run.Owner, run.Since}
			closed[c] = r.At
			if since, again := before[c]; again {
				closed[c] = since
			}
		}
	}
	return closed
}

// look builds the view of one read. Temporary conditions become problems once they have been seen for long enough.
func (m *memory) look(in input) *Rota {
	if in.ages = m.ages(in); noAge(in) {
		in.unknown = append(slices.Clip(in.unknown), Unknown{What: "renewals", Error: "whether members renew their Leases " +
			"needs a second read: the API server does not report its time, or when Leases were written"})
	}
	m.sort(&in)
	r := build(in)
	moves := map[Move]time.Time{}
	for i, move := range r.Moves {
		since, again := m.moves[move]
		if !again {
			since = in.at
		}
		moves[move] = since
		if again {
			r.Moves[i].Seconds = ptr.To(in.at.Sub(since).Seconds())
		}
		if reported := r.movingFor(move); reported > 0 && reported.Seconds() > ptr.Deref(r.Moves[i].Seconds, 0) {
			r.Moves[i].Seconds = ptr.To(reported.Seconds())
		}
	}
	m.moves = moves
	e := evidence{
		now: in.now(), bounds: coverage.BoundsBy(in.reports), closed: map[string]slot.Set{}, uid: in.uid,
		seenEpoch: in.seenEpoch,
		noLeases:  in.noLeases, noReports: in.noReports, differences: coverage.DifferencesIn(in.table, in.reports),
		gone: in.gone,
	}
	m.closed = r.Closed(m.closed)
	for c, since := range m.closed {
		if in.at.Sub(since) > e.bounds.Recovery {
			set := e.closed[c.Owner]
			set.Add(c.Slot)
			e.closed[c.Owner] = set
		}
	}
	r.Problems = problems(r, e)
	r.judgeWarnings()
	r.addHeldBack()
	r.addKeyKills()
	r.addHistory()
	return r
}

// movingFor returns how long a move has been in its phase, according to the new owner's report; 0 if unknown or short.
func (r *Rota) movingFor(m Move) (longest time.Duration) {
	if report := r.Reports[m.To]; report != nil {
		for s := m.First; s <= m.Last; s++ {
			longest = max(longest, report.Moving[slot.Slot(s)])
		}
	}
	return longest
}
