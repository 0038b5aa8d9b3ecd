package controllers

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/slot"
)

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
