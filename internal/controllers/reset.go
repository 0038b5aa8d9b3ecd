package controllers

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/slot"
)

// resetPatience bounds how long a reconcile waits for the informers before its reset.
const resetPatience = 10 * time.Second

// resets is what OnReset was called with.
type resets struct {
	// call is nil if OnReset was not called, or with nil.
	call func(ctx context.Context, key types.NamespacedName)
	// decided says that it was called, perhaps with nil.
	decided bool
}

// OnReset sets a function that is called before the first reconcile of each object since its slot was opened on this
// member, even if the slot was this member's before, for instance before a lapse. Handlers hear nothing of a slot while
// it is shut, so counts of an object's events are void then. Controllers that wait for the events of their own writes
// (expectations, as in Kubernetes' own controllers) must forget in f what they expect.
//
// When f is called, no reconcile of the object runs, the informers show everything that this member and the slot's
// former owner wrote, and handlers have heard of it. f runs in the worker's goroutine, concurrently for different keys.
// It may block, which holds up that worker alone. Its context is that of the reconcile to come, and ends when the slot
// is lost. The object need not exist any more: while it does not, f is called before every reconcile, since a namesake
// may come.
//
// A controller has one such function: the last call of OnReset counts. Call it before Run. nil says that the controller
// counts nothing, so that nobody asks whether it was forgotten.
func (c *Controller) OnReset(f func(ctx context.Context, key types.NamespacedName)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resets = resets{call: f, decided: true}
}

// HasDecided reports whether OnReset was called, perhaps with nil.
func (c *Controller) HasDecided() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resets.decided
}

// OnReset is Controller.OnReset for the items of the queue that are synced by a function that went through Admit.
func (q *Queue[T]) OnReset(f func(ctx context.Context, item T)) {
	if f == nil {
		q.controller.OnReset(nil)
		return
	}
	q.controller.OnReset(func(ctx context.Context, _ types.NamespacedName) {
		if item, ok := ctx.Value(itemKey{}).(T); ok {
			f(ctx, item)
		}
	})
}

// itemKey is the context key of a queue's item.
type itemKey struct{}

// reset calls the function of OnReset if the key has not been reconciled since its slot was opened.
func (c *Controller) reset(ctx context.Context, s slot.Slot, key types.NamespacedName) {
	c.mu.Lock()
	if c.resets.call == nil {
		c.mu.Unlock()
		return
	}
	call := c.resets.call
	c.mu.Unlock()
	var fresh, shown bool
	c.Work.With(func(k *keys) { fresh, shown = k.Fresh(s, key) })
	if !fresh {
		return
	}
	if !shown {
		limited, cancel := context.WithTimeout(ctx, resetPatience)
		err := c.env.Share.ShowWritten(limited, s)
		cancel()
		if err != nil && ctx.Err() == nil {
			c.env.Log.Info("Resetting an object although informers may lag behind what was written", "controller", c.Name,
				"object", key.String(), "cause", err.Error())
		}
	}
	call(ctx, key)
	c.Work.With(func(k *keys) {
		if ctx.Err() == nil { // otherwise the slot may have been silenced, and be heard again
			k.Reset(s, key)
		}
	})
}
