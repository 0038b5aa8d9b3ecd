package view

import (
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/slot"
)

// memory is what a Reader has seen, and since when, by the monotonic clock of this machine.
type memory struct {
	moves  map[Move]time.Time
	closed map[closure]time.Time
	// leases are by holders, as of listed.
	leases map[string]sighting
	listed listing
	// serials are those of the members' reports at the last look.
	serials map[string]uint64
}

// closure is a slot that its owner reports closed although nothing moves.
type closure struct {
	slot  slot.Slot
	owner string
	epoch uint64 // at which it got the slot
}

// look builds the view of what was read now. What should not last is a problem once it has been seen for long enough.
func (m *memory) look(in input) *Rota {
	if in.ages = m.ages(in); noAge(in) {
		in.unknown = append(slices.Clip(in.unknown), Unknown{What: "renewals", Error: "whether members renew their Leases " +
			"takes a second look: the API server does not say what time it is, or when Leases were written"})
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
		if told := r.movingFor(move); told > 0 && told.Seconds() > ptr.Deref(r.Moves[i].Seconds, 0) {
			r.Moves[i].Seconds = ptr.To(told.Seconds())
		}
	}
	m.moves = moves
	e := evidence{
		now: in.now(), bounds: coverage.BoundsBy(in.reports), closed: map[string]slot.Set{}, uid: in.uid, told: in.told,
		noLeases: in.noLeases, noReports: in.noReports, differences: coverage.DifferencesIn(in.table, in.reports),
		gone: in.gone,
	}
	closed := map[closure]time.Time{}
	for _, run := range in.table.Runs {
		report := r.Reports[run.Owner]
		if in.table.IsDuty(run.Slots.First) || run.Next != "" || run.Unsettled || report == nil {
			continue
		}
		shut := slot.SetOf(run.Slots).Minus(report.Open)
		for _, s := range shut.Slots() {
			c := closure{s, run.Owner, run.Epoch}
			since, again := m.closed[c]
			if !again {
				since = in.at
			}
			closed[c] = since
			if in.at.Sub(since) > e.bounds.Recovery {
				set := e.closed[run.Owner]
				set.Add(s)
				e.closed[run.Owner] = set
			}
		}
	}
	m.closed = closed
	r.Problems = problems(r, e)
	r.judgeWarnings()
	r.addHeldBack()
	r.addKeyKills()
	r.addHistory()
	return r
}

// movingFor returns for how long a move has been in its phase, by the report of who gets the slots; 0: not known, or
// not for long.
func (r *Rota) movingFor(m Move) (longest time.Duration) {
	if report := r.Reports[m.To]; report != nil {
		for s := m.First; s <= m.Last; s++ {
			longest = max(longest, report.Moving[slot.Slot(s)])
		}
	}
	return longest
}
