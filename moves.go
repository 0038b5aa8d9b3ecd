package rota

import (
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/coverage"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// keptHandovers is how many handovers a member remembers.
const keptHandovers = 16

// moves measures the moves of slots and duties to this incarnation, and from it. It is told what the incarnation sees
// and does, with the time, and has no clock. Each slot goes through this:
//
//	     next is me          Warmed          owner is me          Open
//	away ─────────▶ warming ───────▶ waiting ───────────▶ activating ─────▶ working
//	  │                │                         ▲ ▲
//	  │ owner is me    └──── owner is me ────────┘ │
//	  └────────────────────────────────────────────┘
//
// Methods may be called concurrently.
type moves struct {
	id string

	mu    sync.Mutex
	last  *table.Table
	slots map[slot.Slot]*move
	// idle says, of the slots that nobody works on as far as the tables tell, since when.
	idle map[slot.Slot]time.Duration
	// giving are the slots that this member drains.
	giving map[slot.Slot]giving
	// ended are the last ones, newest first.
	ended []coverage.Handover
}

// move is the move of one slot.
type move struct {
	phase movePhase
	// since is when the move began, and begun when the phase did.
	since, begun time.Duration
	// round is that of the Warm under way.
	round                 uint64
	warm, drain, activate time.Duration
	from                  string
	cause                 table.Cause
	epoch                 uint64
}

type movePhase uint8

const (
	moveWarming movePhase = iota
	moveWaiting
	moveActivating
	moveEnded
)

// landed is a slot to which a member has just come.
type landed struct {
	move
	slot slot.Slot
	duty string
	// stall is for how long nobody worked on the slot, as far as the tables tell: the last moment of a drain, and the wait
	// until a crashed member was expelled, are not in it.
	stall time.Duration
}

func newMoves(id string) *moves {
	return &moves{id: id, slots: map[slot.Slot]*move{}, idle: map[slot.Slot]time.Duration{},
		giving: map[slot.Slot]giving{}}
}

// seen takes a version of the table, newer than the last one. It returns the slots that others got from this member.
func (m *moves) seen(now time.Duration, t *table.Table) []given {
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

func (m *moves) see(now time.Duration, t *table.Table, s slot.Slot, r table.Run) {
	mv := m.slots[s]
	_, idle := m.idle[s]
	switch {
	case r.Owner == m.id && (mv == nil || mv.epoch != r.Epoch):
		if mv == nil || mv.phase > moveWaiting {
			mv = &move{phase: moveActivating, since: now}
			m.slots[s] = mv
		}
		mv.own(now, t, r)
		if m.last != nil {
			mv.from = m.last.At(s).Owner
		}
		if mv.from == m.id {
			mv.from = "" // it was handed away and back, and the versions between were not seen
		}
		if !idle {
			m.idle[s] = now
		}
	case r.Owner == m.id:
	case r.Next == m.id:
		if mv == nil || mv.phase > moveWaiting {
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
	case moveWarming:
		mv.warm = now - mv.begun
	case moveWaiting:
		mv.drain = now - mv.begun
	case moveActivating, moveEnded:
	}
	mv.phase, mv.begun, mv.epoch, mv.cause = moveActivating, now, r.Epoch, table.CauseAssigned
	if note, ok := t.Notes[r.Epoch]; ok && r.Unsettled {
		mv.cause = note.Cause
	}
}

// warming says that a Warm of that round has begun.
func (m *moves) warming(set slot.Set, round uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range set.Slots() {
		if mv := m.slots[s]; mv != nil {
			mv.round = round
		}
	}
}

// warmed says that the Warm of that round has ended.
func (m *moves) warmed(now time.Duration, set slot.Set, round uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range set.Slots() {
		if mv := m.slots[s]; mv != nil && mv.phase == moveWarming && mv.round == round {
			mv.phase, mv.warm, mv.begun = moveWaiting, now-mv.begun, now
		}
	}
}

// opened says that the gate of the slots was opened, and returns those of them to which the member has just come.
func (m *moves) opened(now time.Duration, wall time.Time, set slot.Set) []landed {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []landed
	for _, s := range set.Slots() {
		delete(m.giving, s) // the drain was called off
		mv := m.slots[s]
		if mv == nil || mv.phase != moveActivating {
			continue // it was open before
		}
		mv.phase, mv.activate = moveEnded, now-mv.begun
		duty := ""
		if m.last != nil {
			duty = m.last.Duty(s)
		}
		out = append(out, landed{move: *mv, slot: s, duty: duty, stall: now - m.idle[s]})
		delete(m.idle, s)
		m.keep(wall, s, duty, mv)
	}
	return out
}

// keep adds a move to the handovers, except for those of the rota's own duties. What came with one version of the
// table, the same way, is one handover.
func (m *moves) keep(wall time.Time, s slot.Slot, duty string, mv *move) {
	if table.OwnDuty(duty) {
		return
	}
	at := slices.IndexFunc(m.ended, func(h coverage.Handover) bool {
		return h.Duty == "" && h.Epoch == mv.epoch && h.From == mv.from && h.Cause == mv.cause
	})
	if at < 0 || duty != "" {
		m.ended = slices.Insert(m.ended, 0, coverage.Handover{Duty: duty, From: mv.from, Cause: mv.cause, Epoch: mv.epoch})
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

// oldest returns for how long the oldest move has been under way; 0: there is none.
func (m *moves) oldest(now time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	longest := time.Duration(0)
	for _, mv := range m.slots {
		if mv.phase != moveEnded {
			longest = max(longest, now-mv.since)
		}
	}
	return longest
}

// ages returns for how long each slot has been in the present phase of its move, if for 2 s at least. Reports are not
// written when they are the same, so that times are told in few steps.
func (m *moves) ages(now time.Duration) map[slot.Slot]time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out map[slot.Slot]time.Duration
	for s, mv := range m.slots {
		if age := coarse(now - mv.begun); mv.phase != moveEnded && age > 0 {
			if out == nil {
				out = map[slot.Slot]time.Duration{}
			}
			out[s] = age
		}
	}
	return out
}

// coarse returns the longest of 2, 5, 10, 20 and 30 s and whole minutes that is not above age; 0: none is. Above an
// hour it is whole hours.
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

// handovers returns the last handovers to this incarnation, newest first.
func (m *moves) handovers() []coverage.Handover {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.ended)
}
