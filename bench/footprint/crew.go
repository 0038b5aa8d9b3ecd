package footprint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/bench/meter"
	"github.com/rota-dev/rota/internal/await"
)

const (
	pollEvery   = 100 * time.Millisecond
	settleLimit = 20 * time.Minute
)

// crew is the replicas of one operator.
type crew struct {
	*runner
	c        Case
	name     string // of the rota and of the leader's Lease
	stamp    bool   // they stamp what they create
	replicas []*replica
}

// start starts replicas, all at once.
func (c *crew) start(ctx context.Context, n int, watch string) error {
	type result struct {
		r   *replica
		err error
	}
	results := make(chan result)
	first := len(c.replicas)
	for i := range n {
		go func() {
			pod := fmt.Sprintf("%s-%d", c.name, first+i)
			r, err := startReplica(ctx, c.Command, c.dir, pod, operatorConfig{
				Form: c.c.Form, Kubeconfig: c.cluster.Plane.Kubeconfig(), Name: c.name, Pages: c.dir, Watch: watch,
				Lease: c.Lease, Stamp: c.stamp,
			})
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
	return errors.Join(append(errs, ctx.Err())...)
}

// end ends all replicas.
func (c *crew) end() {
	for _, r := range c.replicas {
		r.Kill()
	}
}

func (c *crew) readings(ctx context.Context) ([]reading, error) {
	out := make([]reading, len(c.replicas))
	for i, r := range c.replicas {
		var err error
		if out[i], err = r.reading(ctx); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// settle waits until the replicas have reconciled at least n times, share the work, and are idle.
func (c *crew) settle(ctx context.Context, reconciles int) ([]reading, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, settleLimit, fmt.Errorf("not settled after %v", settleLimit))
	defer cancel()
	var last int64
	since := time.Now()
	for {
		now, err := c.readings(ctx)
		if err != nil {
			return nil, errors.Join(err, context.Cause(ctx))
		}
		if sum := activity(now); sum != last || !c.shared(now) || total(now) < int64(reconciles) {
			last, since = sum, time.Now()
		}
		if time.Since(since) >= c.Quiet {
			return now, nil
		}
		if err := await.Sleep(ctx, pollEvery); err != nil {
			return nil, fmt.Errorf("%w: %d reconciles, want %d; %+v", context.Cause(ctx), total(now), reconciles, now)
		}
	}
}

// shared says whether the work is distributed: there is one leader, or every slot is open in its member.
func (c *crew) shared(now []reading) bool {
	if c.c.Form == Stock {
		leaders := 0
		for _, r := range now {
			if r.Working {
				leaders++
			}
		}
		return leaders == 1
	}
	return !slices.ContainsFunc(now, func(r reading) bool { return !r.Settled || r.Members != len(c.replicas) })
}

// activity is a number that grows with each reconcile and each request for objects of sharded kinds.
func activity(now []reading) int64 {
	sum := total(now)
	for _, r := range now {
		for what, n := range r.Requests {
			if _, ok := cluster.Sharded()[meter.Resource(what)]; ok {
				sum += int64(n)
			}
		}
	}
	return sum
}

func total(now []reading) (sum int64) {
	for _, r := range now {
		sum += r.Reconciles
	}
	return sum
}

// quieten waits until no reconcile has ended for a second.
func (c *crew) quieten(ctx context.Context) error {
	last, since := int64(-1), time.Now()
	for time.Since(since) < time.Second {
		now, err := c.readings(ctx)
		if err != nil {
			return err
		}
		if sum := total(now); sum != last {
			last, since = sum, time.Now()
		}
		if err := await.Sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
	return nil
}

// rest returns the replicas' resident memory, and resets the peaks.
func (c *crew) rest(ctx context.Context) ([]Replica, error) {
	out := make([]Replica, len(c.replicas))
	for i, r := range c.replicas {
		now, err := r.reading(ctx)
		if err != nil {
			return nil, err
		}
		out[i] = Replica{Role: c.role(r, now), Watches: now.Watches}
		if out[i].resident, err = r.resident(ctx); err != nil {
			return nil, err
		}
		if err := r.reset(ctx); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c *crew) role(r *replica, now reading) string {
	switch {
	case c.c.Form != Stock:
		return r.role
	case now.Working:
		return roleActive
	default:
		return roleStandby
	}
}
