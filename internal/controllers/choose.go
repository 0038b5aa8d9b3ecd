package controllers

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/slot"
)

// Choose returns the keys that a controller does not want when slots open. The keys belong to objects that exist in
// these slots and are not in the queue for another reason. Choose is called on goroutines of the rota, possibly
// concurrently. Handovers wait for it.
type Choose func(set slot.Set, keys []types.NamespacedName) (unwanted map[types.NamespacedName]bool)

// SetChoose sets the controller's Choose function. Call it before the controller's workers run.
func (c *Controller) SetChoose(f Choose) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.choose = f
}
