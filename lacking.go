package rota

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/slot"
)

// A slot may be open although a kind cannot be listed (delivery.Share.Lacks). Controllers that need the kind do not
// work on the slot until the kind can be listed.

// await remembers a key that a worker took. It is admitted once the kinds that its controller needs are complete.
func (c *Controller) await(s slot.Slot, key types.NamespacedName) {
	c.mu.Lock()
	if c.rota.share.Holds(s) {
		c.keys.Await(s, key)
	}
	c.keys.Drop(s, key) // the key always waits for the one or the other
	c.mu.Unlock()
	if !c.rota.share.Lacks(c.kind, s) { // completed may have run before
		c.complete(delivery.Opened{})
	}
	c.rota.gate.Recheck(s)
}

// completed enqueues the objects of slots that were opened without a kind, now that it has been listed.
func (r *Rota) completed(opened map[schema.GroupKind]delivery.Opened) {
	for _, c := range r.registered() {
		c.complete(opened[c.kind])
	}
}

// complete enqueues the keys that waited for kinds, and the objects that came with these.
func (c *Controller) complete(objects delivery.Opened) {
	c.mu.Lock()
	waited := c.keys.Complete(func(s slot.Slot) bool { return c.rota.share.Lacks(c.kind, s) })
	c.mu.Unlock()
	objects = c.chosen(c.rota.share.Held(), objects)
	c.enqueue(slices.Concat(waited, objects.Deleted, objects.Changed), PriorityEvent)
	c.enqueue(objects.Recent, PriorityRecent)
	c.enqueue(objects.Others, PriorityOpened)
}

// awaitsDeletion reports whether a key of a deleted object in the slot waits for kinds to be complete (rule R15).
func (c *Controller) awaitsDeletion(s slot.Slot) bool {
	c.mu.Lock()
	keys := c.keys.Awaiting(s)
	c.mu.Unlock()
	return slices.ContainsFunc(keys, func(key types.NamespacedName) bool { return !c.rota.share.Exists(c.kind, key) })
}
