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

// recovery is the state of a member that sees no table, or one that was not adopted (rule R16).
type recovery struct {
	on bool
	// since is when recovery began, in heard time (see watch). pending is true until the next echo sets it.
	since   time.Duration
	pending bool
	// ready is since when the member could write if it were its turn, or 0.
	ready time.Duration
	// confirmed is true if a consistent read found the table missing.
	confirmed bool
	// proof is the version of this member's first renewal that began after it saw the object to adopt. Once the watch
	// shows it, the watch has caught up. early is true while a renewal that began before is in flight.
	early bool
	proof string
}

func (m *Member) beginRecovery() {
	if m.recovery.on {
		return
	}
	m.recovery = recovery{on: true, pending: true}
	m.shutAll()
	m.slots.shut()
	if m.phase == joined || m.phase == leaving {
		m.note("TableLost", true, "the table is missing or was replaced; "+
			"all work stops until the members have made sure that no member uses the old one")
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

// renewed records the answer to a renewal. missing is set if there is no object to adopt.
func (r *recovery) renewed(e Renewed, missing bool) {
	if e.Outcome == OutcomeDone && r.on && !missing && r.proof == "" && !r.early {
		r.proof = e.Lease.Version
	}
	r.early = false
}

// settle sets the heard time at which recovery began, at the first echo since then.
func (r *recovery) settle(heard time.Duration) {
	if r.pending {
		r.pending, r.since = false, heard
	}
}

// caughtUp reports whether the watch of Leases is newer than the object to adopt: a renewal that began later has come
// back. echoed is the latest one that did. A lagging watch may hide a gate that was opened by a table that was created
// and deleted before this object.
func (r *recovery) caughtUp(echoed string) bool {
	return r.proof != "" && resourceversion.Compare(echoed, r.proof) >= 0
}

// safe reports whether no member can still be working with another table. This member must have waited for a lease,
// since a member may have no Lease. And each other member's Lease must show a shut gate, show the same new table, or
// have been unchanged for a lease (rule R16).
func (m *Member) safe() bool {
	if !m.watch.all || !m.watch.complete || m.recovery.pending {
		return false
	}
	if m.watch.heard-m.recovery.since < m.cfg.LeaseDuration {
		return false
	}
	for id, o := range m.watch.others {
		switch {
		case !o.missing && !o.lease.Open && m.watch.writesEnded(o, m.cfg.aftermath()):
		case !o.missing && m.snap.UID != "" && o.lease.TableUID == m.snap.UID:
		case m.watch.expired(id, m.cfg.LeaseDuration):
		default:
			return false
		}
	}
	return true
}

// aftermath is how long a member's writes may still take effect after it has shut its gate.
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
	if !m.due(m.swap.retryAt) || !mine {
		return // members take turns; if two write anyway, the swap decides
	}
	if !m.snap.Missing() && m.swap.refused == m.snap.Version {
		return // a read will bring a newer version
	}
	if m.snap.Missing() {
		if !m.recovery.confirmed {
			m.read.wanted = true
			return
		}
		m.recovery.confirmed = false // after a conflict, read the table again
		m.send(table.New(m.cfg.Slots, m.cfg.Key, m.epochAbove()), true)
		return
	}
	if !m.recovery.caughtUp(m.watch.version) {
		return
	}
	t, epoch := m.snap.Table.Clone(), m.epochAbove()
	switch restored := t.UID != ""; {
	case restored && len(t.Members) > 0:
		// This is a copy of another table. Its members may have worked on other slots since the copy was made. One of them
		// may have been suspended while it sent a write. The fence refuses that write once the table does not name the
		// member.
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

// turn is how long this member waits before it writes. Members take turns in the order of the hash of their IDs. The
// first writes at once. After a while all do: those before them may be gone or unable to read the table.
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

// epochsPerSecond is more epochs than a rota can use in a second, so the wall clock stays ahead.
const epochsPerSecond = 1000

// epochAbove returns an epoch above all that were ever used. It is above all epochs in Leases and, since Leases lag
// behind the last swap, above the wall clock (rule R16).
func (m *Member) epochAbove() uint64 {
	epoch := m.top
	for _, highest := range m.epochs {
		epoch = max(epoch, highest)
	}
	if m.snap.Table != nil {
		epoch = max(epoch, m.snap.Table.Epoch)
	}
	if m.now.Wall > 0 {
		epoch = max(epoch, uint64(m.now.Wall)*epochsPerSecond)
	}
	return epoch + 1
}
