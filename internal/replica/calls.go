package replica

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/slot"
)

// Runner runs functions that block. Production uses Goroutines. The simulator runs them one at a time, in its own time.
type Runner interface {
	// Go starts do. done is closed when do has returned.
	Go(do func()) (done <-chan struct{})
	// Wait returns when done is closed, and Sleep after d, or with false when ctx ends. Only functions that the Runner
	// has started may call them.
	Wait(done <-chan struct{})
	Sleep(ctx context.Context, d time.Duration) bool
}

// Goroutines is a Runner that starts goroutines.
type Goroutines struct{}

// Go implements Runner.
func (Goroutines) Go(do func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	return done
}

// Wait implements Runner.
func (Goroutines) Wait(done <-chan struct{}) { <-done }

// Sleep implements Runner.
func (Goroutines) Sleep(ctx context.Context, d time.Duration) bool { return await.Sleep(ctx, d) == nil }

// Calls are the goroutines of an incarnation. Its methods may be called concurrently.
type Calls struct {
	ctx    context.Context //nolint:containedctx // of all goroutines
	cancel context.CancelFunc
	log    logr.Logger
	runner Runner
	all    sync.WaitGroup
}

// NewCalls returns the goroutines of an incarnation that ctx does not end.
func NewCalls(ctx context.Context, log logr.Logger, runner Runner) *Calls {
	c := &Calls{log: log, runner: runner}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return c
}

// Go runs do, which must return soon after Context has ended.
func (c *Calls) Go(do func()) {
	c.all.Add(1)
	c.runner.Go(func() {
		defer c.all.Done()
		do()
	})
}

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
func (c *Calls) sleep(wait time.Duration) bool { return c.runner.Sleep(c.ctx, wait) }

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
