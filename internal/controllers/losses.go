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
	// lossPatience is how long a call of the function of OnLost may take before it is logged. lossCalls is how many of
	// such calls of a controller may hang before the function is not called any more.
	lossPatience = 10 * time.Second
	lossCalls    = 10
	// lossPeriod is the time between two looks at lost objects of which something is in flight.
	lossPeriod = 100 * time.Millisecond
)

// loseLater has the function of OnLost called for lost objects, in a goroutine that ends when none is left.
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

// lose calls the function of OnLost for one lost object, and waits for lossPatience at most. It returns false when the
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

// boundLosses forgets the lost objects while lossCalls calls of the function of OnLost hang.
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

// awaitLosses waits for what is in flight of lost objects, or returns false if none is left.
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

// hasNamesake reports whether a slot of this member has an object of the name, other than the one that left: with
// slot.KeyUID that may be.
func (c *Controller) hasNamesake(key types.NamespacedName, left slot.Slot) bool {
	s, stored := c.env.Share.Stored(c.Kind, key)
	return stored && s != left && c.env.Share.Holds(s)
}

// losses returns how many lost objects wait for a call of the function of OnLost, and how many calls have not returned.
func (c *Controller) losses() (waiting, called int) {
	c.Work.With(func(k *keys) { waiting, called = k.Losses() })
	return waiting, called
}

// Losses returns for how many objects that left this member the function of OnLost has not returned. set is false if
// there is no such function.
func (c *Controller) Losses() (n int, set bool) {
	waiting, called := c.losses()
	return waiting + called, c.getHooks().lost != nil
}
