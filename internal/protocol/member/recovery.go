package member

import (
	"cmp"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// recovery is the state of a member that sees no table, or one that nobody has adopted (rule R16).
type recovery struct {
	on bool
	// since is the heard time at which it began. It is pending until the next echo.
	since   time.Duration
	pending bool
	// ready is since when it may write but for its turn; 0: it may not.
	ready time.Duration
	// confirmed: a consistent read found the table missing.
	confirmed bool
	// proof is the version of the first renewal of its own that began after it saw the object to adopt. Once the watch
	// shows it, the watch has caught up. early: a renewal is under way that began before.
	early bool
	proof string
}

func (m *Member) beginRecovery() {
	if m.recovery.on {
		return
	}
	m.recovery = recovery{on: true, pending: true}
	m.shutAll()
	m.shutSlots()
	if m.phase == joined || m.phase == leaving {
		m.note("TableLost", true, "the table is missing or was replaced; "+
			"working on nothing until the members have made sure that nobody works by the old one")
	}
}

// found records an object that has to be adopted.
func (m *Member) found(s Snapshot) {
	anew := !m.recovery.on || m.snap.UID != s.UID
	m.snap = s
	m.beginRecovery()
	if anew {
		m.recovery.early, m.recovery.proof = m.lease.underWay, ""
		m.lease.next = m.now.Mono
	}
}

// renewalSucceeded records the version of this member's Lease after a renewal.
func (m *Member) renewalSucceeded(version string) {
	if m.recovery.on && !m.snap.Missing() && m.recovery.proof == "" && !m.recovery.early {
		m.recovery.proof = version
	}
}

// caughtUp says that the watch of Leases shows what came after the object to adopt: a renewal that began since has come
// back. A watch that lags may hide a gate that opened by a table created and deleted before this object.
func (m *Member) caughtUp() bool {
	w := m.recovery.proof
	return w != "" && resourceversion.Compare(m.watch.version, w) >= 0
}

// safe says that nobody can still be working by another table. This member has waited a lease, for members without a
// Lease. And each Lease of another member shows a shut gate, shows the same new table, or has not changed for a lease
// (rule R16).
func (m *Member) safe() bool {
	if !m.watch.all || !m.watch.complete || m.recovery.pending {
		return false
	}
	if m.watch.heard-m.recovery.since < m.cfg.LeaseDuration {
		return false
	}
	for id, o := range m.watch.others {
		switch {
		case !o.missing && !o.lease.Open && m.writesEnded(o):
		case !o.missing && m.snap.UID != "" && o.lease.TableUID == m.snap.UID:
		case m.silence(id) >= m.silenceLimit(id):
		default:
			return false
		}
	}
	return true
}

// writesEnded says that no write that a member sent before it shut its gate can still be on its way.
func (m *Member) writesEnded(o *other) bool {
	return o.lease.Epoch == 0 || !o.shutting && m.watch.heard-o.shut >= max(m.cfg.aftermath(), o.lease.LongestWrite)
}

// aftermath is how long after a member has shut its gate there can be writes for it.
func (c *Config) aftermath() time.Duration {
	if c.Outlives {
		return max(c.FenceDelay, c.RenewDeadline)
	}
	return c.FenceDelay
}

// repair creates or adopts the table once that is safe.
func (m *Member) repair() {
	if m.unfit.err != nil || m.swap.underWay || m.lapsed || m.phase == starting || !m.safe() {
		m.recovery.ready = 0
		return
	}
	mine := m.waited(&m.recovery.ready, true, m.turn())
	if !m.due(m.swap.retryAt) {
		return
	}
	if !m.snap.Missing() && m.swap.refused == m.snap.Version {
		return // a newer version is about to be read
	}
	// Members take turns. If two write all the same, the swap decides.
	if !mine {
		return
	}
	if m.snap.Missing() {
		if !m.recovery.confirmed {
			m.read.wanted = true
			return
		}
		m.recovery.confirmed = false // after a conflict the table must be read again
		m.send(table.New(m.cfg.Slots, m.cfg.Key, m.epochAbove()), true)
		return
	}
	if !m.caughtUp() {
		return
	}
	t, epoch := m.snap.Table.Clone(), m.epochAbove()
	switch restored := t.UID != ""; {
	case restored && len(t.Members) > 0:
		// This is a copy of another table. Its members may have worked on other slots since the copy was made. One of them
		// may have been stopped in the middle of sending a write. The fence refuses that write once the table does not name
		// the member.
		for len(t.Members) > 0 {
			t.Remove(t.Members[0].ID)
		}
	case restored && !m.due(m.seenAt+max(m.cfg.aftermath(), m.cfg.LongestWrite())):
		return
	default:
		t.UID = m.snap.UID
	}
	var all slot.Set
	all.AddRange(slot.Range{First: 0, Last: slot.Slot(t.Total() - 1)})
	t.Update(all, func(r *table.Run) {
		r.Epoch, r.Next, r.Ready, r.Unsettled = epoch, "", false, r.Owner != ""
	})
	t.Notes[epoch] = table.Note{Cause: table.CauseExpelled}
	t.Seal(epoch)
	m.send(t, false)
}

// turn is how long this member waits until it writes. Members take turns in the order of the hash of their IDs, the
// first at once, and after a while all: those whose turn is first may have gone, or be unable to read the table.
func (m *Member) turn() time.Duration {
	ids := []string{m.cfg.Self.ID}
	for id, o := range m.watch.others {
		if !o.missing && !m.dead(id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Compare(xxhash.Sum64String(a), xxhash.Sum64String(b))
	})
	return min(m.cfg.RetryPeriod, time.Duration(slices.Index(ids, m.cfg.Self.ID))*m.cfg.RetryPeriod/8)
}

// epochsPerSecond is more than the number of epochs that a rota can use in a second, so the wall clock stays ahead.
const epochsPerSecond = 1000

// epochAbove returns an epoch that nobody has seen. It is above all that Leases tell and, since Leases lag behind the
// last swap, above the wall clock (rule R16).
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
