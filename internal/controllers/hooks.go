package controllers

import (
	"context"
	"fmt"
	"runtime/debug"
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

const (
	// lossPatience is how long an OnLost call may take before it is logged. lossCalls is how many calls of a controller
	// may hang before its OnLost function is not called any more.
	lossPatience = 10 * time.Second
	lossCalls    = 10
	// lossPeriod is the time between two checks of lost objects that still have something in flight.
	lossPeriod = 100 * time.Millisecond
)

// loseLater starts a goroutine that calls the OnLost function for lost objects until none is left.
func (c *Controller) loseLater() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waiting, _ := c.losses(); waiting == 0 || c.losing {
		return
	}
	c.losing = true
	go func() {
		for c.lose() {
		}
	}()
}

// lose calls the OnLost function for one lost object and waits for at most lossPatience. It returns false when the
// goroutine has to end.
func (c *Controller) lose() (more bool) {
	c.boundLosses()
	key, left, found := c.Work.BeginLoss()
	if !found {
		return c.awaitLosses()
	}
	ctx, cancel := context.WithTimeout(context.Background(), lossPatience)
	defer cancel()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		defer c.Work.With(func(k *keys) { k.EndLoss(key) })
		defer func() {
			if p := recover(); p != nil {
				c.env.Log.Error(fmt.Errorf("%v", p), "The function of OnLost panicked", "controller", c.Name, "object",
					key.String(), "stack", string(debug.Stack()))
			}
		}()
		if !c.hasNamesake(key, left) {
			c.getHooks().lost(ctx, key)
		}
	}()
	select {
	case <-returned:
	case <-ctx.Done():
		c.env.Log.Error(nil, "The function of OnLost has not returned. Until it does, this member does not reconcile the "+
			"object", "controller", c.Name, "object", key.String(), "after", lossPatience.String())
	}
	return true
}

// boundLosses drops the lost objects while lossCalls calls of the OnLost function hang.
func (c *Controller) boundLosses() {
	if _, hang := c.losses(); hang < lossCalls {
		return
	}
	dropped := 0
	c.Work.With(func(k *keys) { dropped = k.DropLosses() })
	if dropped > 0 {
		c.env.Log.Error(nil, "The function of OnLost is not called for objects that have left this member, since earlier "+
			"calls hang", "controller", c.Name, "objects", dropped, "hang", lossCalls)
	}
}

// awaitLosses waits while lost objects have something in flight. It returns false if no lost objects are left.
func (c *Controller) awaitLosses() (more bool) {
	c.mu.Lock()
	waiting, _ := c.losses()
	c.losing = waiting > 0
	c.mu.Unlock()
	if waiting > 0 {
		time.Sleep(lossPeriod)
	}
	return waiting > 0
}

// hasNamesake reports whether a slot of this member has a different object of the same name as the one that left, which
// is possible with slot.KeyUID.
func (c *Controller) hasNamesake(key types.NamespacedName, left slot.Slot) bool {
	s, stored := c.env.Share.Stored(c.Kind, key)
	return stored && s != left && c.env.Share.Holds(s)
}

// losses returns how many lost objects wait for an OnLost call, and how many calls have not returned.
func (c *Controller) losses() (waiting, called int) {
	c.Work.With(func(k *keys) { waiting, called = k.Losses() })
	return waiting, called
}

// Losses returns the number of objects that left this member and whose OnLost call has not returned. set is false if
// the controller has no OnLost function.
func (c *Controller) Losses() (n int, set bool) {
	waiting, called := c.losses()
	return waiting + called, c.getHooks().lost != nil
}
