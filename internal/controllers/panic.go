package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/slot"
)

// ErrPanicked is the result (Controller.Ended) of a reconcile that panicked.
var ErrPanicked = errors.New("the reconciler panicked: the log has the stack")

const (
	// lastWords bounds how long a worker whose reconcile panicked waits until the event is created.
	lastWords = time.Second
	// reportedPanics is how many panics of each controller are reported. A panic that ends the process is among the first.
	reportedPanics = 5
)

// reportPanic reports the object whose reconcile panicked. It is called before the panic reaches the top of the
// goroutine, where it may end the process. It waits until the event is created, because the slot's next owner will get
// the same object.
func (c *Controller) reportPanic(key types.NamespacedName, s slot.Slot) {
	if c.panics.Add(1) > reportedPanics {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	c.env.EmitNow(ctx, member.Notify{Reason: "ReconcilePanicked", Warning: true, Message: fmt.Sprintf(
		"controller %s panicked at %s %s in slot %d. If that ends the process, the log of its last run has the stack, and "+
			"the next owner of the slot will meet the object", c.Name, c.Kind, cache.ObjectName(key), s)})
}
