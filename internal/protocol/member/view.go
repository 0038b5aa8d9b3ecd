package member

import (
	"time"

	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// This file implements the planner's view of a member.

func (m *Member) view() planner.View {
	return planner.View{
		Config: &m.rules, Local: local{m}, Now: m.now.Mono, Wall: m.now.Wall, Table: m.table(), Version: m.snap.Version,
		Phase: phases[m.phase], Rank: m.rank(), Expelled: m.toExpel, Complete: m.watch.all && m.watch.complete,
		InDoubt: m.swap.inDoubt(m.snap.Version), Sending: m.phase == leaving && m.slots.sending(),
		Serial: m.serial, Memory: m.planner,
	}
}

var phases = map[phase]planner.Phase{joining: planner.Joining, joined: planner.Joined, leaving: planner.Leaving}

// rank returns this member's rank among the planners, or -1 if it does not plan.
func (m *Member) rank() int {
	t := m.table()
	if t == nil {
		return -1
	}
	silent := func(patience time.Duration) bool {
		for id := range m.watch.others {
			if _, member := t.Member(id); member && m.watch.silence(id) >= patience {
				return true
			}
		}
		return false
	}
	return m.candidates.Rank(m.cfg.Self.ID, m.cfg.LeaseDuration, m.snap.Version, t, m.dead, silent)
}

// predecessor returns the ID of the member that ran in this container before a restart, or "".
func (m *Member) predecessor() string {
	if m.phase != joining {
		return ""
	}
	v := m.view()
	p, _ := v.Predecessor()
	return p.ID
}

// local implements planner.Local.
type local struct{ *Member }

func (l local) Dead(id string) bool { return l.dead(id) }

func (l local) Renewing(id string) bool { return l.watch.renewing(id, l.cfg.RenewDeadline) }

func (l local) OnTime(id string) bool { return l.watch.renewing(id, l.period()*5/2) }

func (l local) Seen(id string) bool { return l.watch.others[id] != nil }

// aliveAfter is how many renewals of another member prove that it is alive. The first one seen may predate the list.
const aliveAfter = 2

func (l local) Alive(id string) bool {
	o := l.watch.others[id]
	return o != nil && !o.missing && o.renewals >= aliveAfter
}

// WritesEnd counts from the other member's last renewal. What its Lease announced counts from the start of that
// renewal, by a clock that may run a thirteenth slower than this member's. So after a whole lease it is over.
func (l local) WritesEnd(id string) time.Duration {
	o := l.watch.others[id]
	if o == nil {
		return 0
	}
	return max(0, o.lease.LongestWrite-l.watch.silence(id)/13*12)
}

func (l local) MemoryOf(id string) planner.MemoryReport {
	if o := l.watch.others[id]; o != nil {
		return o.lease.Memory
	}
	if id == l.cfg.Self.ID {
		return l.lease.mine.Memory
	}
	return planner.MemoryReport{}
}

func (l local) TooOld(format int) (id string) {
	if !l.watch.all || !l.watch.complete {
		return ""
	}
	t := l.table()
	for other, o := range l.watch.others {
		_, member := t.Member(other)
		late := o.missing || l.watch.silence(other) >= l.cfg.LeaseDuration
		if o.older && o.lease.Format < format && !member && !late && (id == "" || other < id) {
			id = other
		}
	}
	return id
}

// olderLease reports whether a Lease is from a process that does not read the newest format and sees no table that it
// could use.
func olderLease(l Lease) bool { return l.Format < table.Format && l.Epoch == 0 && l.TableUID == "" }

func (l local) Slot(s slot.Slot) planner.Slot {
	at := &l.slots[s]
	return planner.Slot{
		State: progress[at.state], Epoch: at.epoch, Loaded: at.heldSince == at.epoch,
		Cause: at.cause, Versions: at.versions, Gone: at.gone,
	}
}

var progress = [...]planner.State{
	warming: planner.Warming, warm: planner.Warm, open: planner.Open, draining: planner.Draining,
	drained: planner.Drained, sent: planner.Sent,
}
