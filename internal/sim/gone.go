package sim

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/rota-dev/rota/gate"
	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// Deletions (rule R15). A node knows of one from the moment that its object is gone until it has reconciled it, or the
// slot was released. Some wait for a worker for seconds, so that drains leave them to the slot's next owner.

// handsOver says whether deletions go with slots. In half of the lives they do not: drains wait for them, and a slot
// that is shut forgets them.
func (w *World) handsOver() bool { return w.passesOn || !w.wild }

// leaveAfter is how long a drain waits for deletions that it may leave.
const leaveAfter = time.Second

// tombstone is a deletion that somebody has to reconcile: the node that knows of it, and whoever the table names it
// for.
type tombstone struct {
	holder *Node
	named  bool
}

// gone is how a key stands in a table.
func (k key) gone() table.Gone {
	return table.Gone{Slot: k.slot, Kind: "Website", Namespace: k.slot.String(), Name: strconv.Itoa(k.n)}
}

func keyOf(g table.Gone) key {
	n, _ := strconv.Atoi(g.Name)
	return key{g.Slot, n}
}

// remove makes a key one whose object is gone, known to the node.
func (n *Node) remove(k key) {
	n.work.deletions = append(n.work.deletions, k)
	if !n.w.handsOver() || !n.gate.AdmitsGone(k.slot) {
		return // it comes too late for a drain that has ended: the next owner sees it by itself
	}
	n.w.tombstones[k] = &tombstone{holder: n}
	if !n.w.wild {
		return
	}
	if mix := n.w.now/time.Millisecond + time.Duration(7*int(k.slot)+k.n); mix%4 == 0 {
		n.work.busy[k] = n.w.now + mix%8*time.Second
	}
	n.retry(k)
}

// removeSome removes objects of slots that are about to drain, of which workers come to none for long.
func (n *Node) removeSome(set slot.Set) {
	if !n.w.handsOver() || !n.w.wild || n.w.over {
		return
	}
	for _, s := range set.Slots() {
		mix := int(n.w.now/time.Millisecond) + 5*int(s)
		k := key{s, mix % keysPerSlot}
		if mix%3 == 0 && n.gate.AdmitsGone(s) && n.work.flights[k] == nil && !slices.Contains(n.work.deletions, k) {
			n.remove(k)
			n.work.busy[k] = n.w.now + 10*time.Second
		}
	}
}

// retry tries a deletion every second until it was admitted.
func (n *Node) retry(k key) {
	n.w.after(time.Second, func() {
		n.local(func() {
			if slices.Contains(n.work.deletions, k) {
				n.Try(k.slot, k.n)
				n.retry(k)
			}
		})
	})
}

// known returns the deletions in a slot that are not reconciled.
func (n *Node) known(s slot.Slot) (gone []table.Gone) {
	for _, k := range n.work.deletions {
		if k.slot == s {
			gone = append(gone, k.gone())
		}
	}
	slices.SortFunc(gone, table.CompareGone)
	return gone
}

// pending says that a key of the slot waits whose object is gone (rule R15).
func (n *Node) pending(s slot.Slot) bool {
	return slices.ContainsFunc(n.work.deletions, func(k key) bool { return k.slot == s })
}

// leaveGone has drains leave their deletions to the next owners.
func (n *Node) leaveGone(set slot.Set) {
	n.work.left = n.work.left.Union(set)
	n.gate.LeaveGone(set)
}

// abandon notes that a slot is given up to somebody who is not told of its deletions.
func (n *Node) abandon(s slot.Slot) {
	for _, g := range n.known(s) {
		if t := n.w.tombstones[keyOf(g)]; t != nil && t.holder == n {
			delete(n.w.tombstones, keyOf(g))
		}
	}
}

// inherit takes over what the former owners of slots left.
func (n *Node) inherit(a member.Load) {
	n.work.held = n.work.held.Union(a.Slots)
	for _, g := range a.Gone {
		n.w.Counts.Inherited++
		if n.w.opts.LeavesGone != nil {
			continue
		}
		k := keyOf(g)
		if t := n.w.tombstones[k]; t != nil && !n.w.ownerHolds(k, t) {
			t.holder = n
		}
		if !slices.Contains(n.work.deletions, k) {
			n.work.deletions = append(n.work.deletions, k)
			if n.w.wild {
				n.retry(k)
			}
		}
	}
}

// ownerHolds reports whether the slot's owner by the latest table knows of a deletion. A member that follows an older
// table does not take it away: one with a slow clock may do so until it hears that it is expelled.
func (w *World) ownerHolds(k key, t *tombstone) bool {
	now := w.Objects.Table().Table
	return now != nil && w.live(now.At(k.slot).Owner) == t.holder
}

// unfinished takes a deletion back whose reconcile was cut short.
func (n *Node) unfinished(f *flight) {
	if !f.gone || !n.w.handsOver() {
		return
	}
	t := n.w.tombstones[f.key]
	switch {
	case !gate.CutShort(f.ctx):
		if t != nil && t.holder == n {
			delete(n.w.tombstones, f.key)
		}
	case n.work.held.Has(f.key.slot) && !slices.Contains(n.work.deletions, f.key):
		n.work.deletions = append(n.work.deletions, f.key)
		if n.w.wild {
			n.retry(f.key)
		}
	case t != nil && t.holder == n && !t.named:
		delete(n.w.tombstones, f.key)
	}
}

// forget drops the deletions of slots that were released, or shut where those do not outlive that. A table that hands
// them over has been looked at before.
func (n *Node) forget(set slot.Set) {
	n.work.held = n.work.held.Minus(set)
	n.work.deletions = slices.DeleteFunc(n.work.deletions, func(k key) bool { return set.Has(k.slot) })
	for k, t := range n.w.tombstones {
		if t.holder == n && !t.named && set.Has(k.slot) {
			delete(n.w.tombstones, k)
		}
	}
}

// checkGone looks at the deletions when a member has changed the table: who gives a slot away names what is left in it,
// and a name stays until the slot's owner knows of it.
func (w *World) checkGone(old, t *table.Table) {
	named := map[key]bool{}
	for _, g := range t.Gone {
		named[keyOf(g)] = true
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
			named[keyOf(g)] = true
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
		if owner := w.Objects.Table().Table.At(k.slot).Owner; w.live(owner) == t.holder {
			return fmt.Sprintf("the deletion of %v is not reconciled by %s", k, t.holder.ID)
		}
	}
	return ""
}

func (n *Node) hurryPending(set slot.Set) {
	if !n.w.wild {
		return // a script says when
	}
	for _, k := range slices.Clone(n.work.deletions) {
		if set.Has(k.slot) {
			n.Try(k.slot, k.n)
		}
	}
}

// reads turns a table that the node's program is too old for into the error that it gets.
func (n *Node) reads(s member.Snapshot) member.Snapshot {
	format := table.OldestFormat
	switch {
	case s.Table == nil:
	case s.Table.Ordered():
		format = table.OrderFormat
	case len(s.Table.Duties) > 0:
		format = table.DutyFormat
	case len(s.Table.Gone) > 0:
		format = table.GoneFormat
	}
	if n.cfg.Self.MaxFormat < format {
		s.Err = fmt.Errorf("field format: %d, but this program reads %d: %w",
			format, n.cfg.Self.MaxFormat, table.ErrFormat)
		s.Table = nil
	}
	return s
}
