package bench

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/await"
)

// scenario is a part of a life. They follow each other on the same replicas.
type scenario struct {
	// name is for flags and results, title for tables, note explains the table.
	name, title, note string
	// loaded has Websites change meanwhile.
	loaded bool
	// forGood is set if a replica is not replaced: the work of a static strategy does not go on then.
	forGood bool
	// least is how many replicas it takes.
	least int
	// named is set if it is measured only if it is asked for by name.
	named bool
	// do runs it, and returns when the work was distributed again.
	do func(context.Context, *crew) (time.Time, error)
	// figures are the columns of its table.
	figures []string
}

// never reports whether a strategy cannot go through it.
func (sc scenario) never(s Strategy) bool { return sc.forGood && s.Static }

// scenarios are all of them, in the order of a life.
var scenarios = []scenario{
	{
		name: "start", title: "All replicas start",
		note: "All objects and their children exist before. The first start of a rota takes a lease (15 s); later starts " +
			"do not. A sharder labels all objects once.",
		do: func(ctx context.Context, c *crew) (time.Time, error) { return c.begin(ctx) },
		figures: []string{
			"took", "writes", "bytes", "cpu-total", "apiserver-cpu-total", "heap", "greatest-heap", "peak-heap",
		},
	},
	{
		name: "rest", title: "At rest", named: true, do: lasts,
		note: "No object changes. Periodic work of the replicas counts if it falls into the window, as in the steady load. " +
			"Each process samples its heap 100 times a second.",
		figures: []string{"cpu-rate", "apiserver-cpu-rate", "etcd-cpu-rate", "bytes-rate"},
	},
	{
		name: "churn", title: "Steady load", loaded: true, do: lasts,
		note: "Periodic work of the replicas counts if it falls into the window. A rota lists all objects soon after the " +
			"start, and then every ten minutes at most, to compare them with what members hold; with SlotLabel it also lists " +
			"their metadata.",
		figures: []string{"wait-p50", "wait-p99", "cpu", "apiserver-cpu", "etcd-cpu", "bytes-each"},
	},
	{
		name: "join", title: "One more replica", loaded: true,
		note: "With hash modulo, all replicas are restarted, since the number of replicas is one of their flags.",
		do:   func(ctx context.Context, c *crew) (time.Time, error) { return c.grow(ctx) },
		figures: []string{"took", "wait-p50", "wait-max", "writes", "coordination", "reconciles", "bytes",
			"cpu-total"},
	},
	{
		name: "leave", title: "One replica less", loaded: true, least: 2,
		note: "The replica that leads, or one that works, gets SIGTERM.",
		do:   func(ctx context.Context, c *crew) (time.Time, error) { return c.shrink(ctx, false) },
		figures: []string{"took", "wait-p50", "wait-max", "writes", "coordination", "reconciles", "bytes",
			"cpu-total"},
	},
	{
		name: "roll", title: "Rolling restart", loaded: true,
		note:    "As a Deployment does with `maxSurge: 1` and `maxUnavailable: 0`. Hash modulo runs as a StatefulSet.",
		do:      func(ctx context.Context, c *crew) (time.Time, error) { return c.roll(ctx) },
		figures: []string{"took", "wait-p50", "wait-max", "writes", "reconciles", "bytes", "cpu-total"},
	},
	{
		name: "restart", title: "A container is killed and starts again", loaded: true,
		note: "The replica that leads, or one that works, gets SIGKILL. Its container starts again at once, in the " +
			"same Pod.",
		do:      func(ctx context.Context, c *crew) (time.Time, error) { return c.restart(ctx) },
		figures: []string{"took", "wait-p50", "wait-max", "reconciles"},
	},
	{
		name: "crash", title: "A replica is killed for good", loaded: true, forGood: true, least: 2,
		note: "The replica that leads, or one that works, gets SIGKILL, and is not replaced. With hash modulo, its objects " +
			"wait until it is back.",
		do:      func(ctx context.Context, c *crew) (time.Time, error) { return c.shrink(ctx, true) },
		figures: []string{"took", "wait-p50", "wait-max", "writes", "reconciles"},
	},
}

// lasts waits for the window.
func lasts(ctx context.Context, c *crew) (time.Time, error) {
	err := await.Sleep(ctx, c.Window)
	return time.Now(), err
}

// begin starts all replicas at once.
func (c *crew) begin(ctx context.Context) (time.Time, error) {
	started, errs := make([]*replica, c.size), make(chan error)
	for i := range started {
		pod := c.pod(i)
		go func() {
			var err error
			started[i], err = c.process(ctx, pod, operatorConfig{Number: i, Of: c.size})
			errs <- err
		}()
	}
	var err error
	for range started {
		err = errors.Join(err, <-errs)
	}
	c.replicas = slices.DeleteFunc(started, func(r *replica) bool { return r == nil })
	if err != nil {
		return time.Time{}, err
	}
	return c.settle(ctx)
}

// grow adds a replica.
func (c *crew) grow(ctx context.Context) (time.Time, error) {
	n := len(c.replicas)
	if c.strategy.Static {
		return c.renumber(ctx, n+1)
	}
	if err := c.start(ctx, n, n+1); err != nil {
		return time.Time{}, err
	}
	return c.settle(ctx)
}

// shrink ends the replica that leads, or one that works.
func (c *crew) shrink(ctx context.Context, crashes bool) (time.Time, error) {
	if c.strategy.Static {
		return c.renumber(ctx, len(c.replicas)-1)
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

// renumber has there be n replicas, each of which has that number in its configuration: all are restarted, one after
// the other, as a StatefulSet does.
func (c *crew) renumber(ctx context.Context, n int) (time.Time, error) {
	for _, r := range slices.Backward(slices.Clone(c.replicas)) {
		if err := c.end(ctx, r, false); err != nil {
			return time.Time{}, err
		}
		if r.number >= n {
			continue
		}
		if err := c.start(ctx, r.number, n); err != nil {
			return time.Time{}, err
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

// roll replaces all replicas, one after the other: a Deployment starts a new one before it stops an old one (maxSurge
// 1, maxUnavailable 0), a StatefulSet after.
func (c *crew) roll(ctx context.Context) (time.Time, error) {
	n := len(c.replicas)
	for _, r := range slices.Backward(slices.Clone(c.replicas)) {
		if err := c.replace(ctx, r, n); err != nil {
			return time.Time{}, err
		}
	}
	return c.settle(ctx)
}

func (c *crew) replace(ctx context.Context, r *replica, of int) error {
	if c.strategy.Static {
		if err := c.end(ctx, r, false); err != nil {
			return err
		}
		return c.start(ctx, r.number, of)
	}
	if err := c.start(ctx, r.number, of); err != nil {
		return err
	}
	if !c.strategy.Leads { // one that waits for the leader's Lease is ready
		if err := c.replicas[len(c.replicas)-1].ready(ctx); err != nil {
			return err
		}
	}
	return c.end(ctx, r, false)
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
