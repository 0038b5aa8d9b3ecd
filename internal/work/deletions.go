package work

import (
	"context"
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
			out = append(out, table.Gone{Slot: s, Kind: c.env.Kind, Namespace: key.Namespace, Name: key.Name})
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
