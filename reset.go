package rota

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/slot"
)

// resetPatience bounds how long a reconcile waits for the informers before its reset.
const resetPatience = 10 * time.Second

// resets remembers which keys were reset since handlers last began to hear of their slot.
type resets struct {
	// call is nil if OnReset was not called.
	call func(ctx context.Context, key types.NamespacedName)
	// since has, by slot, what happened since the slot was silenced.
	since map[slot.Slot]*heard
}

// heard is what happened since handlers began to hear of a slot.
type heard struct {
	// keys are those that were reset.
	keys map[types.NamespacedName]struct{}
	// shown says that the informers show what this member wrote in the slot.
	shown bool
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
// A controller has one such function: the last call of OnReset counts. Call it before Run.
func (c *Controller) OnReset(f func(ctx context.Context, key types.NamespacedName)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resets = resets{call: f, since: map[slot.Slot]*heard{}}
}

// OnReset is Controller.OnReset for the items of the queue that are synced by a function that went through Admit.
func (q *Queue[T]) OnReset(f func(ctx context.Context, item T)) {
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
	call, since := c.resets.call, c.resets.since[s]
	if since == nil {
		since = &heard{keys: map[types.NamespacedName]struct{}{}}
		c.resets.since[s] = since
	}
	_, done := since.keys[key]
	shown := since.shown
	c.mu.Unlock()
	if done {
		return
	}
	if !shown {
		limited, cancel := context.WithTimeout(ctx, resetPatience)
		err := c.rota.share.ShowWritten(limited, s)
		cancel()
		if err != nil && ctx.Err() == nil {
			c.rota.log.Info("Resetting an object although informers may lag behind what was written", "controller", c.name,
				"object", key.String(), "cause", err.Error())
		}
	}
	call(ctx, key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() == nil { // otherwise the slot may have been silenced before since was made
		since.keys[key], since.shown = struct{}{}, true
	}
}

// silence notes that handlers hear nothing of the slots from now on.
func (c *Controller) silence(set slot.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.resets.since {
		if set.Has(s) {
			delete(c.resets.since, s)
		}
	}
}

// ended notes that a reconcile has ended. c.mu is held.
func (r *resets) ended(f flight, key types.NamespacedName, gone bool) {
	since := r.since[f.slot]
	if since == nil {
		return
	}
	if f.ctx.Err() != nil {
		since.shown = false // the reconcile may have written until now, although the slot has been opened again
	}
	if gone {
		delete(since.keys, key) // a namesake has to be reset
	}
}
