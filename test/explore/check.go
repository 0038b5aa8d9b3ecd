package explore

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/inspect"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Each act is checked for these rules. settle.go checks that the fair continuation of every state ends well.
//
//   - every version of the table is Valid, and its epoch rises (R4)
//   - only a live owner itself gives its slot up, and only to a member that is ready; a member is removed only when its
//     Lease is gone (R6, R7)
//   - a gate opens only for its slot's owner at that epoch, while its Lease says "open", and while no other gate of the
//     slot is open or draining; a paused member's is open until its deadline (R2, R5, R6)
//   - a gate opens only when no write of a former owner can commit any more, given a fence (R6, R7, R16)
//   - the epochs for which a slot is opened rise, and no two members open it for the same one (R12)
//   - a slot's gate is shut while a transfer of it may take effect (R6)
//   - no member creates a Lease that it had before (R7)
//   - the deadline that a renewal sets is no later than its sending allows (R2)
//   - a lapse ends with an answer to a read of the table (R13)
//   - a member that gives a slot away names the deletion in it that is not reconciled, and the table names it until the
//     slot's owner knows of it (R15)
//   - no gate opens while its slot is being loaded (R8); a member that has left owns nothing (R9)

// remember records who owns what in a version of the table.
func (w *world) remember(t *table.Table) {
	if t.UID != tableUID(w.server().table.uid) {
		return // not adopted
	}
	for s := range w.x.total() {
		r := t.At(slot.Slot(s))
		h := &w.changeServer().slots[s]
		if r.Owner == "" || int(r.Epoch) < h.epoch {
			continue
		}
		owner := w.x.indexOf(r.Owner)
		i := slices.IndexFunc(h.owners, func(o ownerAt) bool { return o.epoch == int(r.Epoch) })
		if i < 0 {
			h.owners = append(h.owners, ownerAt{int(r.Epoch), owner})
		} else if was := h.owners[i].owner; was != owner {
			w.violate("epoch twice", "slot %d has owner %s at epoch %d, which was %s's", s, r.Owner, r.Epoch, w.x.name(was))
		}
	}
}

func (w *world) checkCreate(by uint8, t *table.Table) {
	if err := t.Valid(); err != nil {
		w.violate("valid", "%s creates an invalid table: %v", w.x.name(by), err)
	}
}

// checkTransition checks a change of the table that takes effect.
func (w *world) checkTransition(by uint8, before snap, t *table.Table) {
	writer, old := w.x.name(by), before.table
	if err := t.Valid(); err != nil {
		w.violate("valid", "%s writes an invalid table: %v", writer, err)
		return
	}
	if t.Epoch <= old.Epoch {
		w.violate("epoch falls", "%s raises the table's epoch from %d to %d", writer, old.Epoch, t.Epoch)
	}
	if old.UID != t.UID {
		return // adopted
	}
	for _, m := range old.Members {
		if _, ok := t.Member(m.ID); !ok && m.ID != writer && w.server().leases[w.x.indexOf(m.ID)].exists {
			w.violate("expelled with lease", "%s takes %s out of the table, whose Lease is there", writer, m.ID)
		}
	}
	w.checkGone(writer, old, t)
	for s := range slot.Slot(w.x.total()) {
		was, is := old.At(s), t.At(s)
		_, stays := t.Member(was.Owner)
		switch {
		case was.Owner == is.Owner:
		case was.Owner != "" && stays && was.Owner != writer:
			w.violate("taken", "%s takes slot %v from %s, which is a member", writer, s, was.Owner)
		case was.Owner == writer && is.Owner != "" && (!was.Ready || was.Next != is.Owner):
			w.violate("not ready", "%s gives slot %v to %s, which was not ready", writer, s, is.Owner)
		}
	}
}

// checkSending checks a swap that a member sends.
func (w *world) checkSending(pod int, a member.Swap) {
	m, b, now := w.id(pod), w.box(pod), w.server().table
	if now.version != number(a.Version) {
		return // it cannot take effect
	}
	for s := range w.x.total() {
		if a.Table.At(slot.Slot(s)).Owner != m && now.table.At(slot.Slot(s)).Owner == m && b.working(s) {
			w.violate("sent while open", "%s sends a table that gives slot %d away, which is at work", m, s)
		}
	}
}

// checkOpen checks a gate that is about to open.
func (w *world) checkOpen(pod int, a member.Open) {
	b, self, id := w.box(pod), w.self(pod), w.id(pod)
	if b.deadline <= base {
		return // the gate will refuse
	}
	if l := w.server().leases[self]; l.exists && !l.open {
		w.violate("lease not open", "%s opens slots %v, but its Lease says that its gate is shut", id, a.Slots)
	}
	for _, o := range b.ops {
		if early := maskOf(a.Slots, w.x.total()) & o.slots; o.kind == opLoad && early != 0 {
			w.violate("not loaded", "slots %v are opened by %s at epoch %d, and are being loaded", slotsOf(early), id, a.Epoch)
		}
	}
	w.each(a.Slots, func(s int) {
		for i := range w.x.Pods {
			other := w.box(i)
			switch {
			case other.left[s] > base:
				w.violate("late write",
					"slot %d is opened by %s at epoch %d, and a write of a former process of pod %s may still commit",
					s, id, a.Epoch, podName(i))
			case i == pod:
			case other.working(s) && other.gate[s].state == gateOpen:
				w.violate("two open", "slot %d is opened by %s at epoch %d, and is open in %s", s, id, a.Epoch, w.id(i))
			case other.working(s):
				w.violate("two in flight", "slot %d is opened by %s at epoch %d, and %s still works in it", s, id, a.Epoch, w.id(i))
			case other.horizon[s] > base:
				w.violate("late write", "slot %d is opened by %s at epoch %d, and a write of %s may still commit",
					s, id, a.Epoch, w.id(i))
			}
		}
		for _, stray := range w.server().astray {
			if stray.kind == astraySwap && stray.lease == self && stray.table.At(slot.Slot(s)).Owner != id &&
				stray.version == w.server().table.version {
				w.violate("opened though sent",
					"slot %d is opened by %s at epoch %d, and its transfer may still take effect", s, id, a.Epoch)
			}
		}
		h := &w.changeServer().slots[s]
		epoch := int(a.Epoch)
		if w.x.Gone && s == 0 && h.epoch == 0 {
			w.change(pod).owed |= 1
		}
		if !slices.Contains(h.owners, ownerAt{epoch, self}) {
			w.violate("open unowned", "slot %d is opened by %s at epoch %d, which is not its", s, id, epoch)
		}
		if epoch < h.epoch {
			w.violate("epoch falls", "slot %d is opened by %s at epoch %d, after epoch %d", s, id, epoch, h.epoch)
		}
		if epoch == h.epoch && h.opener != self {
			w.violate("epoch twice", "slot %d is opened by %s at epoch %d, as by %s before", s, id, epoch, w.x.name(h.opener))
		}
		h.epoch, h.opener = epoch, self
		h.owners = slices.DeleteFunc(h.owners, func(o ownerAt) bool { return o.epoch < epoch })
	})
}

// fire sends the writes that were checked before a pause. The fence refuses them if the table does not name the member.
func (w *world) fire(pod int) {
	b, id := w.change(pod), w.id(pod)
	gun := b.gun
	b.gun = 0
	if t := w.server().table.table; t == nil {
		return
	} else if _, named := t.Member(id); !named {
		return
	}
	for s := range w.x.total() {
		if gun>>s&1 == 0 {
			continue
		}
		b.horizon[s] = base + writeTimeout
		if h := w.server().slots[s]; h.opener != w.self(pod) {
			w.violate("late write", "a write for slot %d by %s commits after %s opened it at epoch %d",
				s, id, w.x.name(h.opener), h.epoch)
		}
	}
}

// checkStop checks what a member leaves behind.
func (w *world) checkStop(pod int, a member.Stop) {
	t := w.server().table.table
	if a.Err != nil || t == nil {
		return
	}
	if owned := t.Owned(w.id(pod)); !owned.Empty() {
		w.violate("left owning", "%s has left, and the table says that it owns slots %v", w.id(pod), owned)
	}
}

// checkDeadline checks until when a member is about to work.
func (w *world) checkDeadline(pod int, a member.Deadline) {
	if latest := time.Duration(w.renewed) + w.x.config.RenewDeadline; w.renewed > 0 && a.At > latest {
		w.violate("deadline", "%s means to work until %d, but the renewal that was answered was sent at %d",
			w.id(pod), a.At-base, w.renewed-base)
	}
}

// checkResumed checks what ended a lapse.
func (w *world) checkResumed(pod int, lapsed bool, e member.Event) {
	seen, ok := e.(member.TableSeen)
	if after := w.member(pod); lapsed && after != nil && !inspect.Look(after).Lapsed && !(ok && seen.Consistent) {
		w.violate("resumed unread", "%s ends its lapse without reading the table", w.id(pod))
	}
}
