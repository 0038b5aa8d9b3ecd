package rota

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// leaveAfter is how long a drain waits for deletions that it may leave to the slot's next owner. Most are dealt with in
// that time, at no cost to anybody else; the next owner can do no better with the others than this member.
const leaveAfter = time.Second

// leftover is what drains under way leave to the next owners of their slots (rule R15).
type leftover struct {
	in    *incarnation
	begun time.Duration
	room  int
	// waits are the slots in which deletions are waited for.
	waits slot.Set
}

// look leaves the deletions of as many slots as there is room for, once they have been waited for long enough. Those of
// slots without room are left when it gives up waiting for them: what does not go with the slot is told then.
func (l *leftover) look() {
	if l.waits.Empty() || l.in.rota.now() < l.begun+leaveAfter {
		return
	}
	var leave slot.Set
	for _, s := range l.waits.Slots() {
		over := l.in.rota.now() >= l.patience(s)
		if l.room == 0 && !over {
			continue
		}
		size := 0
		for _, c := range l.in.rota.registered() {
			size += table.GoneSize(c.undone(s))
		}
		if over || size <= l.room {
			leave.Add(s)
			l.room -= min(size, l.room)
		}
	}
	l.waits = l.waits.Minus(leave)
	l.in.rota.gate.LeaveGone(leave)
}

// patience is until when deletions in a slot are waited for: as long as some in this slot are dealt with, whosever they
// are, but not for ever.
func (l *leftover) patience(s slot.Slot) time.Duration {
	last := l.begun
	for _, c := range l.in.rota.registered() {
		last = max(last, c.lastDeletion(s))
	}
	return min(last+deletionPatience, l.begun+deletionLimit, l.in.leaveBy(0.75))
}

// heldByDeletions tells people that deletions keep some of the slots from moving on, and says whether they do.
func (i *incarnation) heldByDeletions(set slot.Set) bool {
	var held slot.Set
	var example string
	for _, s := range set.Slots() {
		if !i.rota.gate.AdmitsGone(s) {
			continue // nothing waits for them
		}
		for _, c := range i.rota.registered() {
			if key, found := c.deletion(s); found {
				held.Add(s)
				example = fmt.Sprintf("%s of controller %s", key, c.name)
			}
		}
	}
	if held.Empty() {
		return false
	}
	i.notify(member.Notify{Reason: "SlotHeldBack", Warning: true, Message: fmt.Sprintf(
		"slots %s cannot move on: deletions in them wait to be reconciled, or keep failing, such as %s; other objects and slots are not held back",
		held, example)})
	return true
}

// deletion returns one in the slot that has not been reconciled; it may be in flight.
func (c *Controller) deletion(s slot.Slot) (key types.NamespacedName, found bool) {
	if gone := c.undone(s); len(gone) > 0 {
		return nameOf(gone[0]), true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, f := range c.flying {
		if f.slot == s && f.gone {
			return key, true
		}
	}
	return key, false
}

// undone returns the deletions in a slot that was drained: the next owner reconciles those that fit into room. What does
// not is told.
func (i *incarnation) undone(s slot.Slot, room int) []table.Gone {
	var out []table.Gone
	for _, c := range i.rota.registered() {
		gone := c.undone(s)
		abandoned := slices.DeleteFunc(slices.Clone(gone), func(g table.Gone) bool {
			size := table.GoneSize([]table.Gone{g})
			fits := g.Fits() && size <= room
			if fits {
				room -= size
				out = append(out, g)
			}
			return fits
		})
		if n := len(abandoned); n > 0 {
			i.rota.metrics.abandoned.Inc()
			i.rota.log.Error(nil, "Slot given up although deletions in it could not be reconciled", "slot", s.String(), "controller", c.name, "deletions", n,
				"first", nameOf(abandoned[0]).String())
		}
	}
	return out
}

// giveUp tells of the deletions in the slots that a leaver could not hand over in time.
func (i *incarnation) giveUp() {
	set := i.rota.tableOf().Owned(i.id)
	for _, s := range set.Slots() {
		i.undone(s, 0)
	}
}

// inherit has deletions reconciled that the former owners of slots left, once the slots are open here.
func (i *incarnation) inherit(a member.Load) {
	for _, g := range a.Gone {
		known := false
		for _, c := range i.rota.registered() {
			if c.kind.String() == g.Kind {
				known = true
				c.inherit(g.Slot, nameOf(g))
			}
		}
		if known {
			i.rota.metrics.inherited.Inc()
			continue
		}
		i.rota.metrics.abandoned.Inc()
		i.rota.log.Error(nil, "A deletion that a former owner left is not reconciled: this member has no controller of that kind",
			"slot", g.Slot.String(), "kind", g.Kind, "object", nameOf(g).String())
	}
}

func nameOf(g table.Gone) types.NamespacedName {
	return types.NamespacedName{Namespace: g.Namespace, Name: g.Name}
}

// inherit remembers the key of an object that is gone until its slot opens here.
func (c *Controller) inherit(s slot.Slot, key types.NamespacedName) {
	if c.want(s, key) {
		c.enqueue([]types.NamespacedName{key}, PriorityEvent)
	}
}

// undone returns the deletions in a slot that have not been reconciled, in order. What is in flight is not among them.
func (c *Controller) undone(s slot.Slot) []table.Gone {
	keys := map[types.NamespacedName]struct{}{}
	c.mu.Lock()
	for key := range c.waiting[s] {
		keys[key] = struct{}{}
	}
	maps.Copy(keys, c.owed[s])
	maps.Copy(keys, c.awaiting[s])
	c.mu.Unlock()
	var out []table.Gone
	for key := range keys {
		if !c.rota.share.Exists(c.kind, key) {
			out = append(out, table.Gone{Slot: s, Kind: c.kind.String(), Namespace: key.Namespace, Name: key.Name})
		}
	}
	slices.SortFunc(out, table.CompareGone)
	return out
}
