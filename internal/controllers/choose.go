package controllers

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/slot"
)

// Choose returns those of the keys that a controller does not want when slots open. The keys are of objects that exist
// in these slots, and are not in the queue for another reason. It is called on goroutines of the rota, also
// concurrently, and holds up handovers while it runs.
type Choose func(set slot.Set, keys []types.NamespacedName) (unwanted map[types.NamespacedName]bool)

// SetChoose sets what chooses. Call it before the controller's workers run.
func (c *Controller) SetChoose(f Choose) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.choose = f
}
