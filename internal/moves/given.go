package moves

import (
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// giving is a slot that this member drains.
type giving struct {
	round          uint64
	begun, drained time.Duration
	done           bool
}

// Given is a slot that this member drained and another member now owns.
type Given struct {
	giving
	slot     slot.Slot
	to, duty string
	epoch    uint64
}

// Draining records that a drain of that round has begun.
func (m *Tracker) Draining(now time.Duration, set slot.Set, round uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range set.Slots() {
		m.giving[s] = giving{round: round, begun: now}
	}
}

// Drained records that the drain of that round has ended for these slots.
func (m *Tracker) Drained(now time.Duration, set slot.Set, round uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range set.Slots() {
		if g := m.giving[s]; g.round == round && !g.done {
			g.drained, g.done = now, true
			m.giving[s] = g
		}
	}
}

// gave returns the slots drained here that a version of the table gives to other members.
func (m *Tracker) gave(t *table.Table) []Given {
	var out []Given
	for s, g := range m.giving {
		switch r := t.At(s); {
		case r.Owner == m.id:
		case g.done && r.Owner != "":
			out = append(out, Given{giving: g, slot: s, to: r.Owner, duty: t.Duty(s), epoch: r.Epoch})
			fallthrough
		default:
			delete(m.giving, s)
		}
	}
	return out
}
