package member

import (
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// prefetch is the set of slots that this member lists before the table assigns them to it, since lists take long (rule
// R8):
//
//   - A planner guesses that members that have been silent for RenewDeadline are dead. Their gates are shut by then. It
//     lists the slots that it would get.
//   - A member that has just joined guesses the plan. It lists the slots that it would get.
//
// A guess is not in the table. It only affects when lists start.
type prefetch struct {
	slots slot.Set
	// heard, version and phase are from the last update. key is the input of the guess.
	heard   time.Duration
	version string
	phase   phase
	key     string
}

// updatePrefetch lists ahead what the current guess contains, and drops the rest.
func (m *Member) updatePrefetch() {
	t := m.table()
	a := &m.prefetch
	if t == nil || m.lapsed || a.heard == m.watch.heard && a.version == m.snap.Version && a.phase == m.phase {
		return
	}
	a.heard, a.version, a.phase = m.watch.heard, m.snap.Version, m.phase
	key, lost := "", func(table.Run) bool { return true }
	var silent []string
	if m.phase == joined {
		silent = m.silent(t)
	}
	switch {
	case len(silent) > 0:
		key = m.snap.Version + " " + strings.Join(silent, " ")
		lost = func(r table.Run) bool { return slices.Contains(silent, r.Owner) }
	case m.phase == joined && planner.AwaitsPlan(m.view()):
		key = "join" // others that join change the plan, but not lists in progress
	}
	if key == a.key {
		return
	}
	a.key = key
	var want, release slot.Set
	if key != "" {
		want = m.guess(t, silent, lost)
	}
	for _, s := range a.slots.Slots() {
		if !want.Has(s) && m.slots[s].state == away {
			release.Add(s)
		}
	}
	hold := want.Minus(a.slots)
	a.slots = want
	if !release.Empty() {
		m.do(Release{Slots: release})
	}
	if !hold.Empty() {
		m.do(Hold{Slots: hold})
	}
}

// silent returns the members that have been silent for RenewDeadline, if this member plans.
func (m *Member) silent(t *table.Table) (ids []string) {
	if !m.watch.complete || !m.watch.all || m.rank() < 0 {
		return nil
	}
	for _, other := range t.Members {
		if other.ID != m.cfg.Self.ID && (m.toExpel[other.ID] || m.watch.silence(other.ID) >= m.cfg.RenewDeadline) {
			ids = append(ids, other.ID)
		}
	}
	return ids
}

// guess returns the slots that a planner would give to this member if the silent members were dead, of those that
// question selects.
func (m *Member) guess(t *table.Table, silent []string, question func(table.Run) bool) slot.Set {
	var set slot.Set
	for i, owner := range planner.Guess(m.view(), silent)[:t.Slots] { // duties have nothing to list
		s := slot.Slot(i)
		l := &m.slots[s]
		if owner == m.cfg.Self.ID && l.state == away && l.heldSince == 0 && question(t.At(s)) {
			set.Add(s)
		}
	}
	return set
}
