package rota

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/delivery"
)

// A slot may be open although a kind cannot be listed (delivery.Share.Lacks). Controllers that need the kind do not
// work on the slot until the kind can be listed.

// completed enqueues the objects of slots that were opened without a kind, now that it has been listed.
func (r *Rota) completed(opened map[schema.GroupKind]delivery.Opened) {
	for _, c := range r.registered() {
		c.complete(opened[c.kind])
	}
}

// complete enqueues the keys that waited for kinds, and the objects that came with these.
func (c *Controller) complete(objects delivery.Opened) {
	objects = c.chosen(c.rota.share.Held(), objects)
	c.work.Complete(slices.Concat(objects.Deleted, objects.Changed))
	c.enqueue(objects.Recent, PriorityRecent)
	c.enqueue(objects.Others, PriorityOpened)
}
