package sim

import (
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// Deletions (rule R15). A node knows of one from the moment that its object is gone until it has reconciled it, or the
// slot was released. Some wait in the queue for seconds, so that drains leave them to the slot's next owner. What the
// nodes' controllers make of them is looked at from outside: each has a tombstone.

// handsOver says whether deletions go with slots. In half of the lives the table has no room for them: drains wait for
// them, and give up those that are not reconciled after a while.
func (w *World) handsOver() bool { return w.passesOn || !w.wild }

// tombstone is a deletion that somebody has to reconcile: the node that knows of it, and whoever the table names it
// for.
type tombstone struct {
	// holder is nobody while only the table knows: who left it has released the slot, and no owner has loaded it since.
	holder *Node
	named  bool
}

// nobody holds what only the table knows of.
var nobody = &Node{}

// goneKind is the kind of the objects in tables.
const goneKind = "Website"

// remove makes a key one whose object is gone, known to the node.
func (ws *workers) remove(k key) { ws.removeFor(k, 0) }

// removeFor has the key wait for a while before a worker gets it.
func (ws *workers) removeFor(k key, wait time.Duration) {
	ws.gone[k] = true
	ws.w.logf("%s learns that %v is gone, a worker gets it after %v", ws.n.ID, k, wait)
	if ws.n.gate.AdmitsGone(k.slot) { // else a drain has ended before, and the next owner sees it
		ws.w.tombstones[k] = &tombstone{holder: ws.n}
	}
	if mix := ws.w.now/time.Millisecond + time.Duration(7*int(k.slot)+k.n); wait == 0 && ws.w.wild && mix%4 == 0 {
		wait = mix % 8 * time.Second
	}
	if wait > 0 {
		ws.addAfter(k, wait)
	} else {
		ws.add(k)
	}
}

// removeSome removes objects of slots that are about to drain, of which workers come to none for long.
func (ws *workers) removeSome(set slot.Set) {
	if !ws.w.wild || ws.w.over {
		return
	}
	for _, s := range set.Slots() {
		mix := int(ws.w.now/time.Millisecond) + 5*int(s)
		k := key{s, mix % keysPerSlot}
		if mix%3 == 0 && ws.n.gate.AdmitsGone(s) && ws.flights[k] == nil && !ws.gone[k] {
			ws.removeFor(k, 10*time.Second)
		}
	}
}

// mourned returns the keys in a slot whose deletions the node has to reconcile.
func (ws *workers) mourned(s slot.Slot) (keys []key) {
	for i := range keysPerSlot {
		k := key{s, i}
		if t := ws.w.tombstones[k]; t != nil && t.holder == ws.n {
			keys = append(keys, k)
		}
	}
	return keys
}

// pending says that a key of the slot waits whose object is gone (rule R15).
func (ws *workers) pending(s slot.Slot) bool { return ws.controller.Work.Waits(s) }

// leaveGone has drains leave their deletions to the next owners.
func (ws *workers) leaveGone(set slot.Set) {
	ws.left = ws.left.Union(set)
	ws.n.gate.LeaveGone(set)
}

// leavesGone returns the deletions in a drained slot that its next owner will reconcile, and checks what is given up:
// without room, only deletions that were left, and deletions in slots that were not open when the drain began.
func (ws *workers) leavesGone(s slot.Slot, fits []table.Gone, room int, open bool) []table.Gone {
	left := map[key]bool{}
	for _, g := range fits {
		left[keyOf(work.NameOf(g))] = true
	}
	for _, k := range ws.mourned(s) {
		switch {
		case left[k]:
		case room == 0 && (ws.left.Has(s) || !open):
			delete(ws.w.tombstones, k) // it is given up, and told
		default:
			ws.w.violate("deletion missed",
				"%s has drained slot %v, and knows of the deletion of %v that is not reconciled", ws.n.ID, s, k)
		}
	}
	if ws.w.opts.LeavesGone != nil {
		return ws.w.opts.LeavesGone(s)
	}
	return fits
}

// inherit takes over what the former owners of slots left.
func (ws *workers) inherit(a member.Load) {
	for _, g := range a.Gone {
		if ws.w.opts.LeavesGone != nil {
			continue
		}
		k := keyOf(work.NameOf(g))
		if t := ws.w.tombstones[k]; t != nil && !ws.w.ownerHolds(k, t) {
			t.holder = ws.n
		}
		ws.gone[k] = true
	}
}

// ownerHolds reports whether the slot's owner by the latest table knows of a deletion. A member that follows an older
// table does not take it away: one with a slow clock may do so until it hears that it is expelled.
func (w *World) ownerHolds(k key, t *tombstone) bool {
	now := w.Objects.Table().Table
	return now != nil && w.live(now.At(k.slot).Owner) == t.holder
}

// finished notes that the deletion of a key was reconciled: from now on there is an object again. A reconcile that was
// cut short is repeated, here or by the slot's next owner.
func (ws *workers) finished(f *flight) {
	if !f.gone || gate.CutShort(f.ctx) {
		return
	}
	delete(ws.gone, f.key)
	if t := ws.w.tombstones[f.key]; t != nil && t.holder == ws.n {
		delete(ws.w.tombstones, f.key)
	}
}

// bereft notes that the node does not know of a deletion any more, after the controller was told that its reconcile has
// ended.
func (ws *workers) bereft(f *flight) {
	if !f.gone || ws.n.share.held.Has(f.key.slot) {
		return
	}
	if t := ws.w.tombstones[f.key]; t != nil && t.holder == ws.n && !t.named {
		delete(ws.w.tombstones, f.key)
	}
}

// forget drops the keys of slots that were released. A table that hands deletions over has been looked at before.
func (ws *workers) forget(set slot.Set) {
	for k := range ws.gone {
		if set.Has(k.slot) {
			delete(ws.gone, k)
		}
	}
	for k, t := range ws.w.tombstones {
		switch {
		case t.holder != ws.n || !set.Has(k.slot):
		case t.named:
			t.holder = nobody
		default:
			delete(ws.w.tombstones, k)
		}
	}
}

// checkGone looks at the deletions when a member has changed the table: who gives a slot away names what is left in it,
// and a name stays until the slot's owner knows of it.
func (w *World) checkGone(old, t *table.Table) {
	named := map[key]bool{}
	for _, g := range t.Gone {
		named[keyOf(work.NameOf(g))] = true
	}
	for k, tomb := range w.tombstones {
		was, is := old.At(k.slot), t.At(k.slot)
		before := tomb.named
		tomb.named = named[k]
		owner := w.live(is.Owner)
		knows := owner != nil && tomb.holder == owner
		switch {
		case tomb.named:
		case is.Owner == "" || owner == nil: // abandoned, and told; or lost with its owner
			if before || tomb.holder.Dead || tomb.holder.Stopped != nil || was.Owner == tomb.holder.ID {
				delete(w.tombstones, k)
			}
		case was.Owner == w.writer.ID && is.Owner != was.Owner && tomb.holder == w.writer:
			w.violate("deletion lost", "%s hands slot %v to %s without the deletion of %v", w.writer.ID, k.slot, is.Owner, k)
		case before && !knows:
			w.violate("deletion lost",
				"the table does not name the deletion of %v any more, and %s does not know of it", k, is.Owner)
		case !knows && (tomb.holder.Dead || tomb.holder.Stopped != nil):
			delete(w.tombstones, k) // it crashed (rule R15)
		}
	}
}

// nameGone notes which deletions a table names that somebody's hand changed, or that is another one. What it does not
// name any more is lost.
func (w *World) nameGone(t *table.Table) {
	named := map[key]bool{}
	if t != nil {
		for _, g := range t.Gone {
			named[keyOf(work.NameOf(g))] = true
		}
	}
	for k, tomb := range w.tombstones {
		if tomb.named && !named[k] {
			delete(w.tombstones, k)
		} else {
			tomb.named = named[k]
		}
	}
}

// live returns the running node of an ID, or nil.
func (w *World) live(id string) *Node {
	for _, n := range w.Nodes {
		if n.ID == id && !n.Dead && n.Stopped == nil {
			return n
		}
	}
	return nil
}

// unreconciled tells of a deletion that the owner of its slot has not reconciled.
func (w *World) unreconciled() string {
	for k, t := range w.tombstones {
		owner := w.Objects.Table().Table.At(k.slot).Owner
		if n := w.live(owner); n != nil && (t.holder == n || t.holder == nobody) {
			return fmt.Sprintf("the deletion of %v is not reconciled by %s", k, owner)
		}
	}
	return ""
}

// reads turns a table that the node's program is too old for into the error that it gets.
func (n *Node) reads(s member.Snapshot) member.Snapshot {
	if s.Table == nil {
		return s
	}
	if format := s.Table.Needs(); n.cfg.Self.MaxFormat < format {
		s.Err = fmt.Errorf("field format: %d, but this program reads %d: %w",
			format, n.cfg.Self.MaxFormat, table.ErrFormat)
		s.Table = nil
	} else if n.cfg.Self.MaxFormat < table.PlaceFormat && len(s.Table.Pins) > 0 {
		s.Table = s.Table.Clone()
		s.Table.Pins = nil // such a program does not know the field
	}
	return s
}
