package work

import (
	"context"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

const (
	// liveTimeout bounds the request that checks whether a name exists. liveDelay is the time until the next try.
	liveTimeout = 5 * time.Second
	liveDelay   = time.Second
)

// isFree reports whether the API server has no object of that name. A new object with the name of the deleted one may
// belong to another member, and then no other member may reconcile the name (rule R15). If the API server does not
// answer, isFree enqueues the key again.
func (c *Controller) isFree(ctx context.Context, s slot.Slot, key types.NamespacedName) bool {
	limited, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	free, err := c.env.IsFree(limited, key)
	switch {
	case err == nil:
	case gate.CutShort(ctx):
		c.owe(s, key)
	default:
		c.mu.Lock()
		c.keys.Queue(s, key, 0) // makes the slot's drain wait for the key
		c.mu.Unlock()
		c.env.After(liveDelay, func() { c.env.Enqueue([]types.NamespacedName{key}, PriorityEvent) })
	}
	return free && err == nil
}

// Inherit remembers the key of a deleted object until its slot opens here.
func (c *Controller) Inherit(g table.Gone) {
	key := NameOf(g)
	if c.want(g.Slot, key) {
		c.env.Enqueue([]types.NamespacedName{key}, PriorityEvent)
	}
}

// Undone returns the deletions in a slot that have not been reconciled and are not in flight, in order.
func (c *Controller) Undone(s slot.Slot) []table.Gone {
	c.mu.Lock()
	keys := c.keys.Undone(s)
	c.mu.Unlock()
	var out []table.Gone
	for _, key := range keys {
		if !c.exists(key) {
			out = append(out, table.Gone{Slot: s, Kind: c.env.Kind.String(), Namespace: key.Namespace, Name: key.Name})
		}
	}
	slices.SortFunc(out, table.CompareGone)
	return out
}

// Deletion returns a deletion in the slot that has not been reconciled. It may be in flight.
func (c *Controller) Deletion(s slot.Slot) (key types.NamespacedName, found bool) {
	if gone := c.Undone(s); len(gone) > 0 {
		return NameOf(gone[0]), true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys.Flights(func(of types.NamespacedName, f Flight[Flying]) {
		if f.Slot == s && f.Gone {
			key, found = of, true
		}
	})
	return key, found
}

// Waits reports whether a key of a deleted object waits in the slot (rule R15): in the queue, with a worker, or for
// kinds to be listed.
func (c *Controller) Waits(s slot.Slot) bool {
	c.mu.Lock()
	keys := append(c.keys.Waiting(s), c.keys.Awaiting(s)...)
	c.mu.Unlock()
	return slices.ContainsFunc(keys, func(key types.NamespacedName) bool { return !c.exists(key) })
}

// Hurry enqueues the waiting keys of deleted objects in the slots at once, whatever their delay.
func (c *Controller) Hurry(set slot.Set) {
	var gone []types.NamespacedName
	for _, s := range set.Slots() {
		c.mu.Lock()
		waiting := c.keys.Waiting(s)
		c.mu.Unlock()
		for _, key := range waiting {
			if !c.exists(key) {
				gone = append(gone, key)
			}
		}
	}
	if len(gone) > 0 {
		c.env.Enqueue(gone, PriorityEvent)
	}
}

// deleted returns when a deletion in the slot was last reconciled, 0 if never.
func (c *Controller) deleted(s slot.Slot) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys.Deleted(s)
}

// NameOf returns the name of a deleted object.
func NameOf(g table.Gone) types.NamespacedName {
	return types.NamespacedName{Namespace: g.Namespace, Name: g.Name}
}

// How long a drain waits for deletions (rule R15).
const (
	// leaveAfter is the wait for deletions that may be left to the slot's next owner. Most are reconciled by then, which
	// costs no other member anything. For the rest, the next owner is in no better position.
	leaveAfter = time.Second
	// DeletionPatience is the wait for the others while none is reconciled: a deleted object must not hold a slot back
	// forever. DeletionLimit bounds the wait even if some are reconciled, since one of the others may keep failing.
	DeletionPatience = 10 * time.Second
	DeletionLimit    = 10 * time.Minute
)

// Leftover decides which deletions a drain leaves to the next owners of its slots (rule R15). Its methods must not be
// called concurrently.
type Leftover struct {
	// Of returns all controllers.
	Of func() []*Controller
	// Begun is when the drain began, on the monotonic clock.
	Begun time.Duration
	// Waits are the slots whose drain waits for deletions.
	Waits slot.Set
	// Room is how many bytes of deletions fit into the table, as counted by table.GoneSize.
	Room int
	// LeaveBy returns the time, on the monotonic clock, from which only the given fraction of a leaving member's handover
	// time is left. It is math.MaxInt64 while the member is not leaving.
	LeaveBy func(part float64) time.Duration
	// Hopeless reports whether this member will not reconcile any more deletions in a slot.
	Hopeless func(s slot.Slot) bool
}

// Look returns the slots that have waited long enough for deletions, as many as there is room for. Their deletions are
// left to the next owners. Slots without room wait until their patience ends; then the deletions that do not fit are
// dropped.
func (l *Leftover) Look(now time.Duration) (leave slot.Set) {
	if l.Waits.Empty() || now < l.Begun+leaveAfter {
		return leave
	}
	for _, s := range l.Waits.Slots() {
		over := now >= l.patience(s)
		if l.Room == 0 && !over {
			continue
		}
		size := 0
		for _, c := range l.Of() {
			size += table.GoneSize(c.Undone(s))
		}
		if over || size <= l.Room {
			leave.Add(s)
			l.Room -= min(size, l.Room)
		}
	}
	l.Waits = l.Waits.Minus(leave)
	return leave
}

// patience returns until when a drain waits for deletions in a slot. The wait is extended, up to a limit, as long as
// any controller reconciles deletions in the slot. A member that leaves does not wait for controllers whose informers
// have stopped: the informers do not come back, and nothing is reconciled without them.
func (l *Leftover) patience(s slot.Slot) time.Duration {
	if l.LeaveBy(0) != math.MaxInt64 && l.Hopeless(s) {
		return l.Begun + leaveAfter
	}
	last := l.Begun
	for _, c := range l.Of() {
		last = max(last, c.deleted(s))
	}
	return min(last+DeletionPatience, l.Begun+DeletionLimit, l.LeaveBy(0.5))
}

// Fit returns the deletions in a slot that fit into the table, which are passed to the next owner, and the others.
func Fit(gone []table.Gone, room int) (fits, abandoned []table.Gone) {
	for _, g := range gone {
		if size := table.GoneSize([]table.Gone{g}); g.Fits() && size <= room {
			room -= size
			fits = append(fits, g)
		} else {
			abandoned = append(abandoned, g)
		}
	}
	return fits, abandoned
}

// Wait reports whether the key of a deleted object waits in the slot, in any controller.
func Wait(of []*Controller, s slot.Slot) bool {
	return slices.ContainsFunc(of, func(c *Controller) bool { return c.Waits(s) })
}
