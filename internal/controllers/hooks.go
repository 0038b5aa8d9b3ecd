package controllers

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/slot"
)

// resetPatience bounds how long a reconcile waits for the informers before its reset.
const resetPatience = 10 * time.Second

// hooks are a controller's functions that are called when objects come and go.
type hooks struct {
	// reset and lost are the functions from OnReset and OnLost, or nil.
	reset, lost func(ctx context.Context, key types.NamespacedName)
	// decided is true if OnReset was called, even with nil.
	decided bool
}

// any reports whether reconciled objects must be remembered.
func (h hooks) any() bool { return h.reset != nil || h.lost != nil }

// OnReset implements rota.Queue.OnReset for the objects of the controller.
func (c *Controller) OnReset(f func(ctx context.Context, key types.NamespacedName)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hooks.reset, c.hooks.decided = f, true
}

// Resets reports whether the controller has an OnReset function, and whether OnReset was called, even with nil.
func (c *Controller) Resets() (resets, decided bool) {
	h := c.getHooks()
	return h.reset != nil, h.decided
}

// OnReset is Controller.OnReset for queue items. It applies to items synced by a function from Admit.
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

// OnLost implements rota.Queue.OnLost for the objects of the controller.
func (c *Controller) OnLost(f func(ctx context.Context, key types.NamespacedName)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hooks.lost = f
	c.Work.With(func(k *keys) { k.WantLosses(f != nil) })
}

// getHooks returns the controller's hooks.
func (c *Controller) getHooks() hooks {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hooks
}

// meet calls the hooks that are due before a reconcile: OnLost if the slot came back before OnLost was called, and
// OnReset if the key has not been reconciled since its slot was opened.
func (c *Controller) meet(ctx context.Context, s slot.Slot, key types.NamespacedName) {
	h := c.getHooks()
	if !h.any() {
		return
	}
	regained, fresh, shown := c.Work.Meet(s, key)
	if regained {
		h.lost(ctx, key)
	}
	if ctx.Err() != nil {
		c.loseLater() // the slot may have left meanwhile
	}
	if h.reset == nil || !fresh {
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
	h.reset(ctx, key)
	c.Work.With(func(k *keys) {
		if ctx.Err() == nil { // otherwise the slot may have been silenced and heard again
			k.Reset(s, key)
		}
	})
}
