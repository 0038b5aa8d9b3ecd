package member

import (
	"cmp"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// trouble is the state of a member that sees no table, or one that nobody adopted (rule R16).
type trouble struct {
	on bool
	// since is the heard time at which it began; pending until the next echo.
	since   time.Duration
	pending bool
	// confirmed: a consistent read found the table missing.
	confirmed bool
	// witness is the version of the first own renewal begun since the object was seen that is to be adopted. early: one is under
	// way that was begun before.
	early   bool
	witness string
}

func (m *Member) enterTrouble() {
	if m.trouble.on {
		return
	}
	m.trouble = trouble{on: true, pending: true}
	m.shutAll()
	m.shutSlots()
	if m.phase == joined || m.phase == leaving {
		m.note("TableLost", true, "the table is missing or was replaced; working on nothing until the members have made sure that nobody works by the old one")
	}
}

// found notes that an object is there which is to be adopted.
func (m *Member) found(s Snapshot) {
	anew := !m.trouble.on || m.snap.UID != s.UID
	m.snap = s
	m.enterTrouble()
	if anew {
		m.trouble.early, m.trouble.witness = m.lease.underWay, ""
		m.lease.next = m.now.Mono
	}
}

// witnessed notes an own renewal that succeeded.
func (m *Member) witnessed(version string) {
	if m.trouble.on && !m.snap.Missing() && m.trouble.witness == "" && !m.trouble.early {
		m.trouble.witness = version
	}
}

// caughtUp says that what the watch shows of Leases is newer than the object that is to be adopted: an own renewal, begun since it
// was seen, has come back. A watch that lags does not show who opened a gate by a table that came and went before this object.
func (m *Member) caughtUp() bool {
	w := m.trouble.witness
	return w != "" && resourceversion.Compare(m.watch.version, w) >= 0
}

// safe says that nobody can still be working by another table: each other member's Lease shows a shut gate or the
// same new table, or has not changed for a lease, and this member waited a lease for those whose Lease is not
// there (rule R16).
func (m *Member) safe() bool {
	if !m.watch.all || !m.watch.complete || m.trouble.pending {
		return false
	}
	if m.watch.heard-m.trouble.since < m.cfg.LeaseDuration {
		return false
	}
	for id, o := range m.watch.others {
		switch {
		case !o.missing && !o.lease.Open && m.stillFor(o):
		case !o.missing && m.snap.UID != "" && o.lease.TableUID == m.snap.UID:
		case m.silence(id) >= m.cfg.LeaseDuration:
		default:
			return false
		}
	}
	return true
}

// stillFor says that nothing that a member wrote before it shut its gate can still be on its way.
func (m *Member) stillFor(o *other) bool {
	return o.lease.Epoch == 0 || !o.shutting && m.watch.heard-o.shut >= m.cfg.FenceDelay
}

// mend creates or adopts the table once that is safe.
func (m *Member) mend() {
	if m.swap.underWay || m.lapsed || m.phase == starting || !m.safe() || !m.due(m.swap.retryAt) {
		return
	}
	if !m.snap.Missing() && m.swap.refused == m.snap.Version {
		return // a newer version is being read
	}
	// One goes first; the swap decides where two do.
	if !m.due(m.trouble.turn(m)) {
		return
	}
	if m.snap.Missing() {
		if !m.trouble.confirmed {
			m.read.wanted = true
			return
		}
		m.trouble.confirmed = false // a conflict must be looked at again
		m.send(table.New(m.cfg.Slots, m.cfg.Key, m.epochAbove()), true)
		return
	}
	if !m.caughtUp() {
		return
	}
	t, epoch := m.snap.Table.Clone(), m.epochAbove()
	switch restored := t.UID != ""; {
	case restored && len(t.Members) > 0:
		// A copy of another table: its members may have worked in other slots since it was made. Whichever of them was stopped in the
		// middle of sending a write must be none any more, for the fence goes by that.
		for len(t.Members) > 0 {
			t.Remove(t.Members[0].ID)
		}
	case restored && !m.due(m.seenAt+m.cfg.FenceDelay):
		return
	default:
		t.UID = m.snap.UID
	}
	var all slot.Set
	all.AddRange(slot.Range{First: 0, Last: slot.Slot(t.Slots - 1)})
	t.Update(all, func(r *table.Run) {
		r.Epoch, r.Next, r.Ready, r.Unsettled = epoch, "", false, r.Owner != ""
	})
	t.Notes[epoch] = table.Note{Cause: table.CauseExpelled}
	t.Seal(epoch)
	m.send(t, false)
}

// turn is when this member may go ahead: at once for the first by hash among those that are there.
func (tr *trouble) turn(m *Member) time.Duration {
	ids := []string{m.cfg.Self.ID}
	for id, o := range m.watch.others {
		if !o.missing && !m.dead(id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Compare(xxhash.Sum64String(a), xxhash.Sum64String(b))
	})
	return m.watch.echo + min(m.cfg.RetryPeriod, time.Duration(slices.Index(ids, m.cfg.Self.ID))*m.cfg.RetryPeriod/8)
}

// epochsPerSecond is more than the epochs that a rota can use up in a second, so that the wall clock stays ahead.
const epochsPerSecond = 1000

// epochAbove is an epoch that nobody has seen: above all that Leases say, and above the wall clock, since Leases
// lag behind the last swap (rule R16).
func (m *Member) epochAbove() uint64 {
	epoch := m.top
	for _, told := range m.epochs {
		epoch = max(epoch, told)
	}
	if m.snap.Table != nil {
		epoch = max(epoch, m.snap.Table.Epoch)
	}
	if m.now.Wall > 0 {
		epoch = max(epoch, uint64(m.now.Wall)*epochsPerSecond)
	}
	return epoch + 1
}
