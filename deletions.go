package rota

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/gate"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

const (
	// deletionPatience bounds how long a drain waits, while no deletion is reconciled, for deletions that it cannot leave
	// to the slot's next owner: a deleted object must not hold a slot back for ever.
	deletionPatience = 10 * time.Second
	// deletionLimit bounds that wait even if deletions are reconciled: one that keeps failing may be among them.
	deletionLimit = 10 * time.Minute
)

// leaveAfter is how long a drain waits for deletions that it may leave to the slot's next owner. Most are reconciled in
// that time, which costs nobody else anything. The next owner is in no better position for the others.
const leaveAfter = time.Second

// leftover decides which deletions a drain leaves to the next owners of its slots (rule R15).
type leftover struct {
	of    *objectHolder
	begun time.Duration
	// waits are the slots in which deletions are waited for.
	waits slot.Set
	// room is what is left of the drain's.
	room    int
	leaveBy func(part float64) time.Duration
}

// look leaves the deletions of as many slots as there is room for, once the drain has waited long enough for them.
// Slots without room wait until patience ends; then the deletions that do not fit are logged and given up.
func (l *leftover) look() {
	now := l.of.rota.now()
	if l.waits.Empty() || now < l.begun+leaveAfter {
		return
	}
	var leave slot.Set
	for _, s := range l.waits.Slots() {
		over := now >= l.patience(s)
		if l.room == 0 && !over {
			continue
		}
		size := 0
		for _, c := range l.of.rota.registered() {
			size += table.GoneSize(c.undone(s))
		}
		if over || size <= l.room {
			leave.Add(s)
			l.room -= min(size, l.room)
		}
	}
	l.waits = l.waits.Minus(leave)
	l.of.rota.gate.LeaveGone(leave)
}

// patience is until when a drain waits for deletions in a slot: as long as some in this slot are reconciled, by any
// controller, but not for ever. A member that leaves does not wait for controllers whose informers have stopped: those
// do not come back, and nothing is reconciled without them.
func (l *leftover) patience(s slot.Slot) time.Duration {
	if l.of.rota.now() >= l.leaveBy(0) && l.hopeless(s) {
		return l.begun + leaveAfter
	}
	last := l.begun
	for _, c := range l.of.rota.registered() {
		last = max(last, c.lastDeletion(s))
	}
	return min(last+deletionPatience, l.begun+deletionLimit, l.leaveBy(0.75))
}

// hopeless reports whether all deletions in a slot belong to controllers whose informers have stopped.
func (l *leftover) hopeless(s slot.Slot) bool {
	share := l.of.rota.share
	return len(share.Ended()) > 0 && !slices.ContainsFunc(l.of.rota.registered(), func(c *Controller) bool {
		return !share.Stale(c.kind) && c.deletions(s)
	})
}

// heldByDeletions tells of deletions that keep some of the slots from moving on; "" if there are none.
func (o *objectHolder) heldByDeletions(set slot.Set) string {
	var held slot.Set
	var example string
	for _, s := range set.Slots() {
		if !o.rota.gate.AdmitsGone(s) {
			continue // nothing waits for them
		}
		for _, c := range o.rota.registered() {
			if key, found := c.deletion(s); found {
				held.Add(s)
				example = fmt.Sprintf("%s of controller %s", key, c.name)
			}
		}
	}
	if held.Empty() {
		return ""
	}
	return fmt.Sprintf("slots %s cannot move on: deletions in them wait to be reconciled, or keep failing, such as %s; "+
		"other objects and slots are not held back", held, example)
}

// deletion returns a deletion in the slot that has not been reconciled. It may be in flight.
func (c *Controller) deletion(s slot.Slot) (key types.NamespacedName, found bool) {
	if gone := c.undone(s); len(gone) > 0 {
		return nameOf(gone[0]), true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys.Flights(func(of types.NamespacedName, f work.Flight[flight]) {
		if f.Slot == s && f.Gone {
			key, found = of, true
		}
	})
	return key, found
}

// undone returns the deletions in a drained slot that the next owner will reconcile: those that fit into room. The
// others are logged.
func (o *objectHolder) undone(s slot.Slot, room int) []table.Gone {
	var out []table.Gone
	for _, c := range o.rota.registered() {
		fits := o.rota.fitting(s, c.name, c.undone(s), room)
		room -= table.GoneSize(fits)
		out = append(out, fits...)
	}
	return out
}

// fitting returns those of the deletions in a slot for which there is room in the table, and tells of the others.
func (r *Rota) fitting(s slot.Slot, controller string, gone []table.Gone, room int) (fits []table.Gone) {
	var abandoned []table.Gone
	for _, g := range gone {
		if size := table.GoneSize([]table.Gone{g}); g.Fits() && size <= room {
			room -= size
			fits = append(fits, g)
		} else {
			abandoned = append(abandoned, g)
		}
	}
	if n := len(abandoned); n > 0 {
		r.metrics.abandoned.Inc()
		r.log.Error(nil, "Slot given up although deletions in it could not be reconciled", "slot", s.String(),
			"controller", controller, "deletions", n, "first", nameOf(abandoned[0]).String())
	}
	return fits
}

// inherit enqueues deletions that the former owners of slots left, once the slots are open here.
func (o *objectHolder) inherit(gone []table.Gone) {
	for _, g := range gone {
		known := slices.Contains(o.rota.keeper.Kinds(), g.Kind)
		for _, c := range o.rota.registered() {
			if c.kind.String() == g.Kind {
				known = true
				c.inherit(g.Slot, nameOf(g))
			}
		}
		if known {
			o.rota.metrics.inherited.Inc()
			continue
		}
		o.rota.metrics.abandoned.Inc()
		o.rota.log.Error(nil,
			"A deletion that a former owner left is not reconciled: this member has no controller of that kind",
			"slot", g.Slot.String(), "kind", g.Kind, "object", nameOf(g).String())
	}
}

func nameOf(g table.Gone) types.NamespacedName {
	return types.NamespacedName{Namespace: g.Namespace, Name: g.Name}
}

// inherit remembers the key of a deleted object until its slot opens here.
func (c *Controller) inherit(s slot.Slot, key types.NamespacedName) {
	if c.want(s, key) {
		c.enqueue([]types.NamespacedName{key}, PriorityEvent)
	}
}

// undone returns the deletions in a slot that have not been reconciled and are not in flight, in order.
func (c *Controller) undone(s slot.Slot) []table.Gone {
	c.mu.Lock()
	keys := c.keys.Undone(s)
	c.mu.Unlock()
	var out []table.Gone
	for _, key := range keys {
		if !c.rota.share.Exists(c.kind, key) {
			out = append(out, table.Gone{Slot: s, Kind: c.kind.String(), Namespace: key.Namespace, Name: key.Name})
		}
	}
	slices.SortFunc(out, table.CompareGone)
	return out
}

const (
	// liveTimeout bounds the request whether a name exists. liveDelay is the time until the next try after no answer.
	liveTimeout = 5 * time.Second
	liveDelay   = time.Second
)

// nameIsFree reports whether the API server has no object of that name. If there is a namesake of the deleted object,
// it may be another member's, and nobody else may reconcile the name (rule R15). If the API server does not answer, the
// key is enqueued again.
func (c *Controller) nameIsFree(ctx context.Context, s slot.Slot, key types.NamespacedName) bool {
	limited, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	exists, err := c.rota.share.Live(limited, c.kind, key)
	if err != nil {
		c.rota.log.V(1).Info("Cannot tell whether an object that was deleted has a namesake; trying again", "controller",
			c.name,
			"object", key.String(), "error", err.Error())
		if gate.CutShort(ctx) {
			c.owe(s, key)
			return false
		}
		c.mu.Lock()
		c.keys.Queue(s, key, 0) // the slot waits for it
		c.mu.Unlock()
		time.AfterFunc(liveDelay, func() { c.enqueue([]types.NamespacedName{key}, PriorityEvent) })
		return false
	}
	return !exists
}

// deletions reports whether a key of a deleted object waits in the slot (rule R15).
func (c *Controller) deletions(s slot.Slot) bool {
	for _, key := range c.waitingIn(s) {
		if !c.rota.share.Exists(c.kind, key) {
			return true
		}
	}
	return c.awaitsDeletion(s)
}

// lastDeletion is when a deletion in the slot was last reconciled.
func (c *Controller) lastDeletion(s slot.Slot) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys.Deleted(s)
}

// hurry enqueues the waiting keys of deleted objects in the slots at once, whatever delay they wait for.
func (c *Controller) hurry(set slot.Set) {
	var gone []types.NamespacedName
	for _, s := range set.Slots() {
		for _, key := range c.waitingIn(s) {
			if !c.rota.share.Exists(c.kind, key) {
				gone = append(gone, key)
			}
		}
	}
	if len(gone) > 0 {
		c.enqueue(gone, PriorityEvent)
	}
}
