// Package moves measures the moves of slots and duties between members, as one member sees them, and sends them to
// OpenTelemetry as traces. Its callers report what the member sees and does, with the time; it has no clock.
package moves

import (
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// keptHandovers is how many handovers a member remembers.
const keptHandovers = 16

// Tracker measures the moves to and from one incarnation of a member. Times are since the member's start. Each slot
// goes through these states:
//
//	     next is me          Warmed          owner is me          Open
//	away ─────────▶ warming ───────▶ waiting ───────────▶ activating ─────▶ working
//	  │                │                         ▲ ▲
//	  │ owner is me    └──── owner is me ────────┘ │
//	  └────────────────────────────────────────────┘
//
// Methods may be called concurrently.
type Tracker struct {
	id string

	mu    sync.Mutex
	last  *table.Table
	slots map[slot.Slot]*move
	// idle maps slots on which no member works, according to the tables, to the time since which that is so.
	idle map[slot.Slot]time.Duration
	// giving holds the slots that this member drains.
	giving map[slot.Slot]giving
	// ended holds the last handovers, newest first.
	ended []coverage.Handover
}

// move is the move of one slot.
type move struct {
	phase phase
	// since is when the move began, and begun when the phase did.
	since, begun time.Duration
	// round is the round of the current Warm.
	round                 uint64
	warm, drain, activate time.Duration
	from                  string
	epoch                 uint64
	// Cause is how the slot came here.
	Cause table.Cause
}

type phase uint8

const (
	warming phase = iota
	waiting
	activating
	arrived
)

// Landed is a slot that has just arrived at a member.
type Landed struct {
	move
	Slot slot.Slot
	// Duty is the name of the slot's duty, empty for a hash slot.
	Duty string
	// Stall is how long no member worked on the slot, according to the tables. It does not include the end of a drain or
	// the wait until a crashed member was expelled.
	Stall time.Duration
}

// New returns a Tracker for the incarnation with that ID.
func New(id string) *Tracker {
	return &Tracker{id: id, slots: map[slot.Slot]*move{}, idle: map[slot.Slot]time.Duration{},
		giving: map[slot.Slot]giving{}}
}

// Seen processes a version of the table that is newer than the last one. It returns the slots that moved from this
// member to others.
func (m *Tracker) Seen(now time.Duration, t *table.Table) []Given {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range t.Runs {
		for s := r.Slots.First; ; s++ {
			m.see(now, t, s, r)
			if s == r.Slots.Last {
				break
			}
		}
	}
	for s := range m.slots {
		if int(s) >= t.Total() {
			delete(m.slots, s)
		}
	}
	m.last = t
	return m.gave(t)
}

func (m *Tracker) see(now time.Duration, t *table.Table, s slot.Slot, r table.Run) {
	mv := m.slots[s]
	_, idle := m.idle[s]
	switch {
	case r.Owner == m.id && (mv == nil || mv.epoch != r.Epoch):
		if mv == nil || mv.phase > waiting {
			mv = &move{phase: activating, since: now}
			m.slots[s] = mv
		}
		mv.own(now, t, r)
		if m.last != nil {
			mv.from = m.last.At(s).Owner
		}
		if mv.from == m.id {
			mv.from = "" // it moved away and back in versions that were not seen
		}
		if !idle {
			m.idle[s] = now
		}
	case r.Owner == m.id:
	case r.Next == m.id:
		if mv == nil || mv.phase > waiting {
			m.slots[s] = &move{since: now, begun: now}
		}
	default:
		delete(m.slots, s)
	}
	switch {
	case r.Owner == m.id:
	case r.Owner != "" && !r.Unsettled:
		delete(m.idle, s)
	case !idle:
		m.idle[s] = now
	}
}

// own begins the last phase.
func (mv *move) own(now time.Duration, t *table.Table, r table.Run) {
	switch mv.phase {
	case warming:
		mv.warm = now - mv.begun
	case waiting:
		mv.drain = now - mv.begun
	case activating, arrived:
	}
	mv.phase, mv.begun, mv.epoch, mv.Cause = activating, now, r.Epoch, table.CauseAssigned
	if note, ok := t.Notes[r.Epoch]; ok && r.Unsettled {
		mv.Cause = note.Cause
	}
}

// Warming records that a Warm of that round has begun.
func (m *Tracker) Warming(set slot.Set, round uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range set.Slots() {
		if mv := m.slots[s]; mv != nil {
			mv.round = round
		}
	}
}

// Warmed records that the Warm of that round has ended.
func (m *Tracker) Warmed(now time.Duration, set slot.Set, round uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range set.Slots() {
		if mv := m.slots[s]; mv != nil && mv.phase == warming && mv.round == round {
			mv.phase, mv.warm, mv.begun = waiting, now-mv.begun, now
		}
	}
}

// Opened records that the gate of the slots was opened, and returns the slots that have just arrived.
func (m *Tracker) Opened(now time.Duration, wall time.Time, set slot.Set) []Landed {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Landed
	for _, s := range set.Slots() {
		delete(m.giving, s) // the drain was called off
		mv := m.slots[s]
		if mv == nil || mv.phase != activating {
			continue // it was already open
		}
		mv.phase, mv.activate = arrived, now-mv.begun
		duty := ""
		if m.last != nil {
			duty = m.last.Duty(s)
		}
		out = append(out, Landed{move: *mv, Slot: s, Duty: duty, Stall: now - m.idle[s]})
		delete(m.idle, s)
		m.keep(wall, s, duty, mv)
	}
	return out
}

// keep adds a move to the handovers, except for the rota's own duties. Moves that came with the same version of the
// table, in the same way, form one handover.
func (m *Tracker) keep(wall time.Time, s slot.Slot, duty string, mv *move) {
	if table.OwnDuty(duty) {
		return
	}
	at := slices.IndexFunc(m.ended, func(h coverage.Handover) bool {
		return h.Duty == "" && h.Epoch == mv.epoch && h.From == mv.from && h.Cause == mv.Cause
	})
	if at < 0 || duty != "" {
		m.ended = slices.Insert(m.ended, 0, coverage.Handover{Duty: duty, From: mv.from, Cause: mv.Cause, Epoch: mv.epoch})
		m.ended = m.ended[:min(len(m.ended), keptHandovers)]
		at = 0
	}
	h := &m.ended[at]
	if h.Count++; duty == "" {
		h.Slots.Add(s)
	}
	h.Ended = wall
	h.Warm, h.Drain, h.Activate = max(h.Warm, mv.warm), max(h.Drain, mv.drain), max(h.Activate, mv.activate)
}

// Oldest returns the age of the oldest move under way, 0 if there is none.
func (m *Tracker) Oldest(now time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	longest := time.Duration(0)
	for _, mv := range m.slots {
		if mv.phase != arrived {
			longest = max(longest, now-mv.since)
		}
	}
	return longest
}

// Ages returns how long each slot has been in the current phase of its move, if at least 2 s. The times are coarse,
// since unchanged reports are not written.
func (m *Tracker) Ages(now time.Duration) map[slot.Slot]time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out map[slot.Slot]time.Duration
	for s, mv := range m.slots {
		if age := coarse(now - mv.begun); mv.phase != arrived && age > 0 {
			if out == nil {
				out = map[slot.Slot]time.Duration{}
			}
			out[s] = age
		}
	}
	return out
}

// coarse returns the longest of 2, 5, 10, 20 and 30 s and whole minutes that is not above age, 0 if age is shorter.
// Above an hour it returns whole hours.
func coarse(age time.Duration) time.Duration {
	switch {
	case age >= time.Hour:
		return age.Truncate(time.Hour)
	case age >= time.Minute:
		return age.Truncate(time.Minute)
	}
	for _, s := range []time.Duration{30, 20, 10, 5, 2} {
		if age >= s*time.Second {
			return s * time.Second
		}
	}
	return 0
}

// Handovers returns the last handovers to this incarnation, newest first.
func (m *Tracker) Handovers() []coverage.Handover {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.ended)
}

// Phases of a handover, as in coverage.Handover.
const (
	PhaseWarm     = "warm"
	PhaseDrain    = "drain"
	PhaseActivate = "activate"
)

// Phases returns how long each phase of the move took. Except for the last, it leaves out phases that did not happen.
func (mv *move) Phases() map[string]time.Duration {
	out := map[string]time.Duration{PhaseActivate: mv.activate}
	if mv.warm > 0 {
		out[PhaseWarm] = mv.warm
	}
	if mv.drain > 0 {
		out[PhaseDrain] = mv.drain
	}
	return out
}
