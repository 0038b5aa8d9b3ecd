package explore

import (
	"fmt"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/slot"
)

// goesAstray says whether the next request of this transition goes astray.
func (w *world) goesAstray() bool {
	w.sent++
	if w.sent-1 != w.lose {
		return false
	}
	w.say("  … which goes astray")
	return true
}

func (w *world) stray(a astray) {
	s := w.changeServer()
	s.astray = append(s.astray, a)
}

// carryOut executes a member's action. A request takes effect at once, unless it goes astray. Its answer is then on its
// way.
func (w *world) carryOut(pod int, action member.Action) {
	b := w.change(pod)
	self := w.self(pod)
	says := func(l member.Lease) lease {
		return lease{epoch: int(l.Epoch), uid: uidOf(l.TableUID), open: l.Open}
	}
	renewed := func(l lease, o member.Outcome) {
		b.renew, b.start = answered(o), base
		b.came(w.x, byLease, b.renew)
		b.renewed = lease{version: l.version, open: l.open}
	}
	swapped := func(serial uint64, s snap, o member.Outcome) {
		b.swap, b.serial, b.swapped = answered(o), serial, s
		b.came(w.x, bySwap, b.swap)
	}
	switch a := action.(type) {
	case member.CreateLease:
		if w.server().leases[self].known {
			w.violate("lease recreated", "%s creates its Lease once more", w.id(pod))
		}
		if w.goesAstray() {
			w.stray(astray{kind: astrayCreateLease, lease: self, says: says(a.Lease), pod: uint8(pod)})
			renewed(lease{}, member.OutcomeUnknown)
			return
		}
		l, o := w.createLease(self, says(a.Lease))
		if o == member.OutcomeDone {
			w.changeServer().leases[self].known = true
		}
		renewed(l, o)
	case member.RenewLease:
		if w.goesAstray() {
			w.stray(astray{
				kind: astrayRenewLease, lease: self, version: number(a.Lease.Version), says: says(a.Lease), pod: uint8(pod),
			})
			renewed(lease{}, member.OutcomeUnknown)
			return
		}
		renewed(w.renewLease(self, says(a.Lease)))
	case member.ReadTable:
		if w.goesAstray() {
			b.read = answered(member.OutcomeUnknown)
			return
		}
		b.begun, b.read = base, answered(member.OutcomeDone)
		b.came(w.x, byRead, b.read)
		b.found = w.server().table
		if b.found.uid == 0 {
			b.found.version = 0 // a 404 has no version
		}
	case member.CreateTable:
		if w.goesAstray() {
			w.stray(astray{kind: astrayCreateTable, lease: self, table: a.Table, pod: uint8(pod)})
			swapped(a.Serial, snap{}, member.OutcomeUnknown)
			return
		}
		s, o := w.createTable(self, a.Table)
		swapped(a.Serial, s, o)
	case member.Swap:
		w.checkSending(pod, a)
		if w.goesAstray() {
			w.stray(astray{kind: astraySwap, lease: self, version: number(a.Version), table: a.Table, pod: uint8(pod)})
			swapped(a.Serial, snap{}, member.OutcomeUnknown)
			return
		}
		s, o := w.swapTable(self, a.Table, uidOf(a.UID), number(a.Version))
		swapped(a.Serial, s, o)
	case member.ReadLoads: // of a canary: its worlds plan by number
		if w.x.Judged {
			b.request(op{kind: opLook, slots: lookSlot, round: a.Serial})
		}
	case member.WatchLeases:
		b.watch, b.all, b.ids = a.Serial, a.All, 0
		for _, id := range a.IDs {
			b.ids |= 1 << w.x.indexOf(id)
		}
		w.relist(pod, lagLeases)
	case member.DeleteLease:
		w.deleteBy(pod, a)
	case member.Warm:
		b.request(op{kind: opWarm, slots: maskOf(a.Slots, w.x.total()), round: a.Round})
	case member.Load:
		b.request(op{kind: opLoad, slots: maskOf(a.Slots, w.x.total()), round: a.Round})
		for _, g := range a.Gone {
			b.owed |= 1 << g.Slot
		}
	case member.Drain:
		w.each(a.Slots, func(s int) {
			if b.gate[s].state == gateOpen {
				b.gate[s].state = gateDraining
			}
			b.request(op{kind: opDrain, slots: 1 << s, round: a.Round, room: a.Room > 0})
		})
	case member.Open:
		w.checkOpen(pod, a)
		w.each(a.Slots, func(s int) { b.open(s, int(a.Epoch)) })
	case member.Shut:
		w.each(a.Slots, func(s int) { b.shut(s) })
	case member.Hold:
	case member.Release:
		b.owed &^= maskOf(a.Slots, w.x.total())
	case member.Deadline:
		w.checkDeadline(pod, a)
		b.setDeadline(int(a.At))
	case member.Notify:
		if a.Reason == "InvalidTable" {
			w.violate("invalid table", "%s: %s", w.id(pod), a.Message)
		}
	case member.Stop:
		w.stop(pod, a)
	default:
		panic(fmt.Sprintf("action %T", a))
	}
}

func (w *world) each(set slot.Set, do func(s int)) {
	for s := range w.x.total() {
		if set.Has(slot.Slot(s)) {
			do(s)
		}
	}
}

func (w *world) deleteBy(pod int, a member.DeleteLease) {
	b, index := w.change(pod), w.x.indexOf(a.ID)
	done := func(o member.Outcome) {
		d := deleted{answered(o), index}
		b.deletes = append(b.deletes, d)
		b.came(w.x, byDelete, d.answer)
	}
	switch {
	case a.UID == "" && w.server().leases[index].exists:
		done(member.OutcomeConflict)
	case a.UID == "":
		done(member.OutcomeMissing)
	case w.goesAstray():
		w.stray(astray{kind: astrayDeleteLease, lease: index, version: number(a.Version), pod: uint8(pod)})
		done(member.OutcomeUnknown)
	default:
		done(w.deleteLease(index, number(a.Version)))
	}
}

// stop ends an incarnation. It also ends the process, unless another incarnation follows.
func (w *world) stop(pod int, a member.Stop) {
	w.checkStop(pod, a)
	b := w.change(pod)
	l := absent
	if a.Rejoin && !b.sig && b.inc < maxIncs {
		l = rejoined
	}
	b.end(l)
	w.state.members[pod] = 0
}

// admit lets a request that went astray take effect.
func (w *world) admit(a astray) {
	switch a.kind {
	case astrayCreateLease:
		w.createLease(a.lease, a.says)
	case astrayRenewLease:
		w.renewLease(a.lease, a.says)
	case astrayDeleteLease:
		w.deleteLease(a.lease, a.version)
	case astrayCreateTable:
		w.createTable(a.lease, a.table)
	default:
		w.swapTable(a.lease, a.table, w.server().table.uid, a.version)
	}
}
