package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/rota-dev/rota/internal/await"
)

// scenario is a part of a life. They follow each other on the same replicas.
type scenario struct {
	// name is for flags and results, title for tables, note for what they do not say.
	name, title, note string
	// load is what is done to main objects meanwhile; nil: nothing.
	load func(context.Context, *crew) (change, error)
	// never says for which strategies it cannot be: their work does not go on by itself.
	never func(Strategy) bool
	// least is how many replicas it takes; 0: one.
	least int
	// another says that the API server is another process after it.
	another bool
	// named says that it is measured only if it is asked for by its name.
	named bool
	// do does it, and returns since when the work is distributed again.
	do func(ctx context.Context, c *crew, r *Result) (time.Time, error)
	// clean undoes what is not to be there in the next one; nil: nothing.
	clean func(context.Context, *crew) error
}

// The loads.
func changes(ctx context.Context, c *crew) (change, error) { return c.change(ctx) }
func creates(ctx context.Context, c *crew) (change, error) { return c.create(ctx) }

// lasts has the load go on for the window, or with polling for as many whole periods as it takes.
func lasts(ctx context.Context, c *crew, _ *Result) (time.Time, error) {
	window := c.Window
	if c.strategy.Polls {
		window = (window + c.poll - 1) / c.poll * c.poll
	}
	err := await.Sleep(ctx, window)
	return time.Now(), err
}

// scenarios are all of them, in the order of a life.
func scenarios() []scenario {
	return []scenario{
		{
			name: "start", title: "All replicas start",
			note: "All objects and their children were there before. The first start of a rota takes a lease (15 s), since " +
				"nobody can know that nobody else works; a rota's later starts do not. A sharder labels all objects once.",
			do: func(ctx context.Context, c *crew, _ *Result) (time.Time, error) { return c.begin(ctx, c.size) },
		},
		{
			name: "rest", title: "At rest", named: true, do: lasts,
			note: "Nobody changes anything. What replicas do now and then is in it where it falls into the time, as in the " +
				"steady load. A process looks at its heap 100 times a second.",
		},
		{
			name: "create", title: "New objects", load: creates, do: lasts,
			note:  "Main objects are created, at the rate at which they are changed elsewhere.",
			clean: func(ctx context.Context, c *crew) error { return c.empty(ctx) },
		},
		{
			name: "churn", title: "Steady load", load: changes, do: lasts,
			note: "What replicas do now and then is in it where it falls into the time. With Rota that is, soon after the " +
				"start and then every ten minutes at most, a list of all objects, to compare them with what members hold, and " +
				"with SlotLabel one of their metadata.",
		},
		{
			name: "flood", title: "Another controller is flooded", named: true, load: changes,
			note: fmt.Sprintf("The other controller's objects change %d times per second.", floodRate),
			do:   func(ctx context.Context, c *crew, r *Result) (time.Time, error) { return c.flood(ctx, r) },
		},
		{
			name: "join", title: "One more replica", load: changes,
			note: "With hash modulo, all replicas are restarted, since each has their number among its flags.",
			do: func(ctx context.Context, c *crew, _ *Result) (time.Time, error) {
				return c.resize(ctx, len(c.replicas)+1, false)
			},
		},
		{
			name: "leave", title: "One replica less", load: changes, least: 2,
			note: "The replica that leads, or one that works, gets SIGTERM.",
			do: func(ctx context.Context, c *crew, _ *Result) (time.Time, error) {
				return c.resize(ctx, len(c.replicas)-1, false)
			},
		},
		{
			name: "roll", title: "Rolling restart", load: changes,
			note: "As a Deployment does with `maxSurge: 1` and `maxUnavailable: 0`. Hash modulo runs as a StatefulSet.",
			do:   func(ctx context.Context, c *crew, _ *Result) (time.Time, error) { return c.roll(ctx) },
		},
		{
			name: "restart", title: "A container is killed and starts again", load: changes,
			note: "The replica that leads, or one that works, gets SIGKILL, and its container starts again at once, in the " +
				"same Pod.",
			do: func(ctx context.Context, c *crew, _ *Result) (time.Time, error) { return c.restart(ctx) },
		},
		{
			name: "outage", title: "The API server crashes", load: changes, another: true,
			note: "The only API server is killed and starts again. A change waits from the first attempt to make it; whoever " +
				"watches connects again, too. Replicas that end start again, as under a kubelet.",
			do: func(ctx context.Context, c *crew, _ *Result) (time.Time, error) { return c.outage(ctx) },
		},
		{
			name: "recreate", title: "All replicas are replaced at once", load: creates, named: true,
			note: "As a Deployment does with `strategy: Recreate`: all get SIGTERM, and when all have ended as many start. " +
				"Main objects are created meanwhile: they wait beside all others, each of which is reconciled once more.",
			do:    func(ctx context.Context, c *crew, _ *Result) (time.Time, error) { return c.recreate(ctx) },
			clean: func(ctx context.Context, c *crew) error { return c.empty(ctx) },
		},
		{
			name: "crash", title: "A replica is killed for good", load: changes, least: 2,
			never: func(s Strategy) bool { return s.Static },
			note: "A replica that leads, or works, gets SIGKILL, and nothing comes back. With hash modulo, the objects of the " +
				"replica wait until somebody brings it back.",
			do: func(ctx context.Context, c *crew, _ *Result) (time.Time, error) {
				return c.resize(ctx, len(c.replicas)-1, true)
			},
		},
		{
			name: "capacity", title: "Capacity", named: true,
			note: fmt.Sprintf("Changes per second that are reconciled within an objective: of the waits in work queues 99 of "+
				"100 are at most %v, and of the times from a change until it is reconciled at most %v. Found by a search that "+
				"ends within %.0f %%.", queueLimit, changeLimit, 100*(narrow-1)),
			do: func(ctx context.Context, c *crew, r *Result) (at time.Time, err error) {
				r.Capacity, err = c.capacity(ctx)
				return time.Now(), err
			},
		},
	}
}

// flood has the other controller be flooded for the window.
func (c *crew) flood(ctx context.Context, r *Result) (time.Time, error) {
	flooding, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- c.Workload.workload.(flooder).flood(flooding, c.cluster.Client) }()
	at, err := lasts(ctx, c, r)
	end()
	return at, errors.Join(err, <-ended)
}

// outage kills the API server and starts it again. Replicas that end because of that start again, as under a kubelet.
// What these did meanwhile is not counted.
func (c *crew) outage(ctx context.Context) (time.Time, error) {
	now, err := c.readings(ctx)
	if err != nil {
		return time.Time{}, err
	}
	before := map[*replica]reading{}
	for i, r := range c.replicas {
		before[r] = now[i]
	}
	if err := c.cluster.Crash(ctx); err != nil {
		return time.Time{}, err
	}
	// The runner's own informer may wait for half a minute before it tries again.
	if err := c.follow(); err != nil {
		return time.Time{}, err
	}
	c.revive = func(r *replica) error {
		c.say("    %s has ended, and starts again", r.pod)
		c.gone[r] = before[r]
		c.replicas = slices.DeleteFunc(c.replicas, func(other *replica) bool { return other == r })
		return c.startAs(ctx, r.pod, r.number, len(before))
	}
	defer func() { c.revive = nil }()
	return c.settle(ctx)
}

// begin starts n replicas at once.
func (c *crew) begin(ctx context.Context, n int) (time.Time, error) {
	type result struct {
		r   *replica
		err error
	}
	results := make(chan result)
	for i := range n {
		pod := c.pod(i)
		c.made++
		go func() {
			r, err := c.process(ctx, pod, operatorConfig{Number: i, Of: n})
			results <- result{r, err}
		}()
	}
	var errs []error
	for range n {
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

// recreate ends all replicas at once, and starts as many when all have ended.
func (c *crew) recreate(ctx context.Context) (time.Time, error) {
	old := slices.Clone(c.replicas)
	defer func() {
		for _, r := range old {
			r.Kill()
		}
	}()
	for _, r := range old {
		if err := errors.Join(c.note(ctx, r), r.End(syscall.SIGTERM)); err != nil {
			return time.Time{}, err
		}
	}
	for _, r := range old {
		if err := r.leave(ctx); err != nil {
			return time.Time{}, err
		}
	}
	return c.begin(ctx, len(old))
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
