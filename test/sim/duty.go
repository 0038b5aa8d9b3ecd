package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Duties (rule R18). A duty has no objects. It is a single flight that lasts until the slot drains or is lost, and
// writes now and then. A function that returns by itself is called again after a while.

// maxDuties is how many duties a world may have at a time by default.
const maxDuties = 16

// everything is the slots of a world, those of duties included.
func (o *Options) everything() slot.Count { return o.Slots + slot.Count(o.Duties) }

func (w *World) isDuty(s slot.Slot) bool { return int(s) >= int(w.opts.Slots) }

// all are the slots of a world.
func (w *World) all() slot.Set {
	return slot.SetOf(slot.Range{Last: slot.Slot(w.opts.everything() - 1)})
}

// split returns the hash slots and the duties of a set.
func (w *World) split(set slot.Set) (hash, duties slot.Set) {
	hash = set.Intersect(w.opts.Slots.All())
	return hash, set.Minus(hash)
}

// duties are the duties of a node.
type duties struct {
	// names are those that a Load told of.
	names map[slot.Slot]string
	// draining are slots whose duties have to end.
	draining slot.Set
}

// dutyHistory is what is known of a duty, whatever its slot.
type dutyHistory struct {
	epoch  uint64
	opener *Node
	slot   slot.Slot
}

// runDuty begins a duty whose slot is open, unless the former run of it has not ended yet.
func (n *Node) runDuty(s slot.Slot) {
	k := key{s, 0}
	if n.Dead || n.work.flights[k] != nil || n.duties.draining.Has(s) || n.Stopped != nil {
		return
	}
	ctx, leave, verdict := n.gate.Enter(context.Background(), s,
		gate.Key{Queue: "duty", Namespace: s.String()}, false)
	if verdict != gate.Admitted {
		return
	}
	epoch, _ := gate.EpochFrom(ctx)
	f := &flight{key: k, epoch: epoch, ctx: ctx, leave: leave, duty: true}
	n.checkAdmitted(f)
	n.work.flights[k] = f
	n.w.Counts.Duties++
	n.work.serial++
	f.slow = n.w.wild && n.work.serial%20 == 0 // it takes long to return
	n.dutyWrites(f)
	if n.w.wild && n.work.serial%5 == 0 { // it returns by itself
		n.w.after(n.w.between(time.Second, 30*time.Second), func() { n.local(func() { n.finish(f) }) })
	}
}

// dutyWrites has a duty write now and then.
func (n *Node) dutyWrites(f *flight) {
	n.w.after(n.w.delay(500*time.Millisecond, 3*time.Second), func() {
		n.local(func() {
			if !f.over && f.ctx.Err() == nil {
				n.write(f)
				n.dutyWrites(f)
			}
		})
	})
}

// dutyEnded has a duty run again that ended while its slot is open.
func (n *Node) dutyEnded(f *flight) {
	n.w.after(time.Second, func() { n.local(func() { n.runDuty(f.key.slot) }) })
}

// endDuties asks the duties of a drain to return.
func (n *Node) endDuties(set slot.Set) {
	n.duties.draining = n.duties.draining.Union(set)
	for _, s := range set.Slots() {
		if f := n.work.flights[key{s, 0}]; f != nil && !f.stuck {
			n.returns(f)
		}
	}
}

// returns has a duty return a moment after its context has ended.
func (n *Node) returns(f *flight) {
	wait := n.w.delay(time.Millisecond, 300*time.Millisecond)
	if f.slow {
		wait = n.w.between(time.Second, 20*time.Second)
	}
	n.w.after(wait, func() { n.local(func() { n.finish(f) }) })
}

// Does says whether the node does the duty of that name now.
func (n *Node) Does(name string) bool {
	for s, is := range n.duties.names {
		if f := n.work.flights[key{s, 0}]; is == name && n.has(s) && f != nil && f.ctx.Err() == nil {
			return true
		}
	}
	return false
}

// Stick has the duty of a slot go on until Land, whatever its context says. It says whether the node does it.
func (n *Node) Stick(s slot.Slot) bool {
	f := n.work.flights[key{s, 0}]
	if f != nil {
		f.stuck, f.table = true, n.w.Objects.Table().UID
	}
	return f != nil
}

// checkDuty looks at a duty that is about to be opened: it may have had another slot before.
func (n *Node) checkDuty(s slot.Slot, epoch uint64) {
	w, name := n.w, n.duties.names[s]
	if name == "" {
		w.violate("nameless duty", "%s opens slot %v, and was not told of which duty", n.ID, s)
		return
	}
	if !strings.Contains(","+n.cfg.Self.Duties+",", ","+name+",") {
		w.violate("unable", "%s opens slot %v of duty %s, which it cannot do", n.ID, s, name)
	}
	h := w.duties[name]
	if h == nil {
		h = &dutyHistory{}
		w.duties[name] = h
	}
	if h.opener != nil && h.slot != s && h.opener != n && h.opener.has(h.slot) &&
		h.opener.duties.names[h.slot] == name {
		w.violateAtGate("two open", "duty %s is opened by %s in slot %v, and is open in %s in slot %v",
			name, n.ID, s, h.opener.ID, h.slot)
	}
	if epoch < h.epoch {
		w.violateAtGate("epoch falls", "duty %s is opened by %s at epoch %d, after epoch %d", name, n.ID, epoch, h.epoch)
	}
	if h.opener != nil && h.opener != n {
		w.Coverage.Rules[18]++
	}
	*h = dutyHistory{epoch: epoch, opener: n, slot: s}
}

// has says whether the slot is open.
func (n *Node) has(s slot.Slot) bool {
	open := n.Open()
	return open.Has(s)
}

// checkNames looks at a change of the table by a member: the name of a duty does not change while somebody has it.
func (w *World) checkNames(old, t *table.Table) {
	for i := range max(len(old.Duties), len(t.Duties)) {
		s := slot.Slot(int(t.Slots) + i)
		was, is := old.Duty(s), t.Duty(s)
		if was == "" || was == is {
			continue
		}
		owner := old.At(s).Owner
		if _, stays := t.Member(owner); owner != "" && stays && owner != w.writer.ID {
			w.violate("taken", "%s takes duty %s from %s, which is a member", w.writer.ID, was, owner)
		}
	}
}

// dutiesUnsettled says what is not as it should be with duties; empty: all is well. fair: no member is on probation.
func (w *World) dutiesUnsettled(t *table.Table, fair bool) string {
	suspended := t.Older != 0 && epochStart+int64(w.now/time.Second)-t.Older < 605
	can := t.Can()
	load := t.DutyCounts()
	mixed := false
	for _, m := range t.Members {
		n := w.live(m.ID)
		mixed = mixed || m.Build != t.Members[0].Build
		if n == nil || suspended {
			continue
		}
		full := t.Total() == int(t.Slots)+slot.MaxDuties && !slices.Contains(t.Duties, "")
		if want := n.cfg.Self.Duties; t.Reads(table.DutyFormat) && m.Duties != want && !full {
			return fmt.Sprintf("%s announces duties %q, and can do %q", m.ID, m.Duties, want)
		}
	}
	for i, name := range t.Duties {
		s := slot.Slot(int(t.Slots) + i)
		owner := t.At(s).Owner
		if name == "" || suspended {
			continue
		}
		if owner == "" {
			return fmt.Sprintf("nobody has duty %s", name)
		}
		if n := w.live(owner); n.work.flights[key{s, 0}] == nil && !w.wild {
			return fmt.Sprintf("%s does not do its duty %s", owner, name)
		}
		for _, m := range t.Members {
			if fair && !mixed && can(m, s) && load[m.ID]+2 <= load[owner] {
				return fmt.Sprintf("duty %s is done by %s, which has %d, and %s has %d", name, owner, load[owner], m.ID, load[m.ID])
			}
		}
	}
	return ""
}
