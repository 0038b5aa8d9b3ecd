package replica

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/rota-dev/rota/slot"
)

// Calls are the goroutines of an incarnation. Its methods may be called concurrently.
type Calls struct {
	ctx    context.Context //nolint:containedctx // of all goroutines
	cancel context.CancelFunc
	log    logr.Logger
	all    sync.WaitGroup
}

func newCalls(ctx context.Context, log logr.Logger) *Calls {
	c := &Calls{log: log}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return c
}

// Go runs do, which must return soon after Context has ended.
func (c *Calls) Go(do func()) { c.all.Go(do) }

// Context ends with the incarnation.
func (c *Calls) Context() context.Context { return c.ctx }

// end ends the context and waits until all goroutines have returned.
func (c *Calls) end() {
	c.cancel()
	c.all.Wait()
}

// After calls do after a delay, unless the incarnation ends first.
func (c *Calls) After(wait time.Duration, do func()) {
	c.Go(func() {
		if c.sleep(wait) {
			do()
		}
	})
}

// sleep waits. It returns false if the incarnation has ended.
func (c *Calls) sleep(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// retry calls do until it succeeds, each time with the slots that it returned before. Then it calls done with these
// slots, unless the incarnation has ended.
func (c *Calls) retry(what string, set slot.Set, do func(context.Context, slot.Set) (slot.Set, error),
	done func(slot.Set),
) {
	c.Go(func() {
		for delay := 50 * time.Millisecond; ; delay = min(2*delay, 5*time.Second) {
			held, err := do(c.ctx, set)
			if err == nil {
				done(held)
				return
			}
			if c.ctx.Err() != nil {
				return
			}
			set = held
			c.log.Error(err, "Cannot "+what+" slots; trying again", "slots", set.String(), "after", delay.String())
			if !c.sleep(delay) {
				return
			}
		}
	})
}
