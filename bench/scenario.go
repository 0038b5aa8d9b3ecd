package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/await"
)

// scenario is a part of a life. They follow each other on the same replicas.
type scenario struct {
	// Name is for flags and results, Title for tables.
	name, title string
	// load says that Websites change meanwhile.
	load bool
	// never says for which strategies it cannot be: their work does not go on by itself.
	never func(Strategy) bool
	// do does it, and returns since when the work is distributed again.
	do func(ctx context.Context, c *crew) (time.Time, error)
}

// scenarios are all of them, in the order of a life.
func scenarios() []scenario {
	return []scenario{
		{name: "start", title: "All replicas start", do: func(ctx context.Context, c *crew) (time.Time, error) {
			return c.begin(ctx)
		}},
		{name: "churn", title: "Steady load", load: true, do: func(ctx context.Context, c *crew) (time.Time, error) {
			err := await.Sleep(ctx, c.Window)
			return time.Now(), err
		}},
		{name: "join", title: "One more replica", load: true, do: func(ctx context.Context, c *crew) (time.Time, error) {
			return c.resize(ctx, len(c.replicas)+1, false)
		}},
		{name: "leave", title: "One replica less", load: true, do: func(ctx context.Context, c *crew) (time.Time, error) {
			return c.resize(ctx, len(c.replicas)-1, false)
		}},
		{name: "roll", title: "Rolling restart", load: true, do: func(ctx context.Context, c *crew) (time.Time, error) {
			return c.roll(ctx)
		}},
		{name: "restart", title: "A container is killed and starts again", load: true,
			do: func(ctx context.Context, c *crew) (time.Time, error) { return c.restart(ctx) }},
		{name: "crash", title: "A replica is killed for good", load: true,
			never: func(s Strategy) bool { return s.Static },
			do: func(ctx context.Context, c *crew) (time.Time, error) {
				if len(c.replicas) < 2 {
					return time.Time{}, errors.New("a crash needs 2 replicas")
				}
				return c.resize(ctx, len(c.replicas)-1, true)
			}},
	}
}

// begin starts all replicas at once.
func (c *crew) begin(ctx context.Context) (time.Time, error) {
	type result struct {
		r   *replica
		err error
	}
	results := make(chan result)
	for i := range c.size {
		pod := fmt.Sprintf("%s-%d", c.name, i)
		c.made++
		go func() {
			r, err := c.process(ctx, pod, operatorConfig{Number: i, Of: c.size})
			results <- result{r, err}
		}()
	}
	var errs []error
	for range c.size {
		got := <-results
		errs = append(errs, got.err)
		if got.err == nil {
			c.replicas = append(c.replicas, got.r)
		}
	}
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return time.Time{}, err
	}
	slices.SortFunc(c.replicas, func(a, b *replica) int { return a.number - b.number })
	return c.settle(ctx)
}

// resize has there be n replicas: one more, or one less, which is the one that leads, or one that works. With a static
// number all are restarted, one after the other, as a StatefulSet does.
func (c *crew) resize(ctx context.Context, n int, crashes bool) (time.Time, error) {
	if c.strategy.Static {
		for _, r := range slices.Backward(slices.Clone(c.replicas)) {
			if err := c.end(ctx, r, false); err != nil {
				return time.Time{}, err
			}
			if r.number < n {
				if err := c.start(ctx, r.number, n); err != nil {
					return time.Time{}, err
				}
			}
		}
		if len(c.replicas) < n {
			if err := c.start(ctx, n-1, n); err != nil {
				return time.Time{}, err
			}
		}
		slices.SortFunc(c.replicas, func(a, b *replica) int { return a.number - b.number })
		return c.settle(ctx)
	}
	if n > len(c.replicas) {
		if err := c.start(ctx, n-1, n); err != nil {
			return time.Time{}, err
		}
		return c.settle(ctx)
	}
	r, err := c.working(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if err := c.end(ctx, r, crashes); err != nil {
		return time.Time{}, err
	}
	return c.settle(ctx)
}

// roll replaces all replicas, one after the other: a Deployment starts a new one before it stops an old one (maxSurge
// 1, maxUnavailable 0), a StatefulSet after.
func (c *crew) roll(ctx context.Context) (time.Time, error) {
	n := len(c.replicas)
	for _, r := range slices.Backward(slices.Clone(c.replicas)) {
		if c.strategy.Static {
			if err := c.end(ctx, r, false); err != nil {
				return time.Time{}, err
			}
		}
		if err := c.start(ctx, r.number, n); err != nil {
			return time.Time{}, err
		}
		if err := c.ready(ctx, c.replicas[len(c.replicas)-1]); err != nil {
			return time.Time{}, err
		}
		if !c.strategy.Static {
			if err := c.end(ctx, r, false); err != nil {
				return time.Time{}, err
			}
		}
	}
	return c.settle(ctx)
}

// ready waits until a replica works, as its readiness check would. One that waits for a leader's Lease is ready.
func (c *crew) ready(ctx context.Context, r *replica) error {
	if c.strategy.Leads {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, settleLimit, fmt.Errorf("%s is not ready after %v", r.pod, settleLimit))
	defer cancel()
	for {
		var now reading
		if err := r.ask(ctx, askReading, &now); err != nil || now.Working {
			return errors.Join(err, context.Cause(ctx))
		}
		if err := await.Sleep(ctx, pollEvery); err != nil {
			return context.Cause(ctx)
		}
	}
}

// restart kills a replica that works, and starts its container again at once, in the same Pod.
func (c *crew) restart(ctx context.Context) (time.Time, error) {
	r, err := c.working(ctx)
	if err != nil {
		return time.Time{}, err
	}
	n := len(c.replicas)
	if err := c.end(ctx, r, true); err != nil {
		return time.Time{}, err
	}
	if err := c.startAs(ctx, r.pod, r.number, n); err != nil {
		return time.Time{}, err
	}
	return c.settle(ctx)
}
