package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/rota-dev/rota/internal/await"
)

// The objective is that of the evaluation of the sharder whose protocol drainlabel has: of the waits in work queues, 99
// of 100 are at most queueLimit, and of the times from a change until it is reconciled at most changeLimit.
const (
	queueLimit  = time.Second
	changeLimit = 5 * time.Second
)

// firstRate is how many changes per second and working replica the search begins with, faster what it multiplies with
// while the objective is met, and narrow the ratio of two rates at which it ends.
const firstRate, faster, narrow = 15, 1.35, 1.05

// capacity returns how many changes per second are reconciled within the objective.
func (c *crew) capacity(ctx context.Context) (float64, error) {
	first := float64(firstRate)
	if !c.strategy.Leads {
		first *= float64(len(c.replicas))
	}
	return search(first, func(rate float64) (bool, error) { return c.meets(ctx, rate) })
}

// search returns a rate at which the objective is met, such that it is not met at narrow times that: with a rate that
// rises from the first one, and then by bisection.
func search(rate float64, meets func(float64) (bool, error)) (float64, error) {
	good, bad := 0.0, math.Inf(1)
	for bad > good*narrow {
		ok, err := meets(rate)
		if err != nil {
			return 0, fmt.Errorf("%.1f changes per second: %w", rate, err)
		}
		if ok {
			good = rate
		} else {
			bad = rate
		}
		switch {
		case bad < 1:
			return 0, errors.New("not even one change per second is reconciled in time")
		case good == 0:
			rate /= 2
		case math.IsInf(bad, 1):
			rate *= faster
		default:
			rate = math.Sqrt(good * bad)
		}
	}
	return good, nil
}

// meets says whether the objective is met at a rate for the window, after a quarter of that which is not judged. It
// returns when all changes are reconciled.
func (c *crew) meets(ctx context.Context, rate float64) (bool, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	loaded, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.load(loaded, rate, changes, fail) }()
	if err := await.Sleep(ctx, c.Window/4); err != nil {
		return false, err
	}
	c.waits.take()
	before, err := c.queues(ctx)
	if err != nil {
		return false, err
	}
	if err := await.Sleep(ctx, c.Window); err != nil {
		return false, err
	}
	after, err := c.queues(ctx)
	if err != nil {
		return false, err
	}
	stop()
	if err := <-ended; err != nil {
		return false, err
	}
	if err := c.reconciled(ctx, settleLimit); err != nil {
		return false, err
	}
	waits, missed := c.waits.take()
	if missed > 0 {
		return false, fmt.Errorf("%d changes were not reconciled within %v", missed, settleLimit)
	}
	if after.Taken == 0 || len(waits) == 0 {
		return false, errors.New("the queues of the replicas tell of no waits, or nothing was changed")
	}
	taken, late := after.Taken-before.Taken, after.Late-before.Late
	slices.Sort(waits)
	p99 := waits[(len(waits)*99+99)/100-1]
	ok := taken > 0 && late*100 <= taken && p99 <= changeLimit
	verdict := "in time"
	if !ok {
		verdict = "late"
	}
	c.say("    %.1f changes/s: p99 %.2f s; %d of %d waited longer than %v in queues: %s", rate, p99.Seconds(), late,
		taken, queueLimit, verdict)
	return ok, c.quieten(ctx)
}

// queues are counts of keys that were taken from a process's work queues.
type queues struct {
	Taken uint64 `json:"taken"`
	Late  uint64 `json:"late"` // of them, those that waited longer than queueLimit
}

// readQueues reads the metrics of this process.
func readQueues() (out queues) {
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		panic(err) // of its own metrics
	}
	for _, f := range families {
		if !strings.HasSuffix(f.GetName(), "workqueue_queue_duration_seconds") {
			continue
		}
		for _, m := range f.GetMetric() {
			n := m.GetHistogram().GetSampleCount()
			out.Taken += n
			out.Late += n - within(m.GetHistogram(), queueLimit)
		}
	}
	return out
}

// within is how many of a histogram are at most a limit, which is one of its bounds but for rounding.
func within(h *dto.Histogram, limit time.Duration) (n uint64) {
	for _, b := range h.GetBucket() {
		if b.GetUpperBound() <= limit.Seconds()*1.001 {
			n = max(n, b.GetCumulativeCount())
		}
	}
	return n
}

// queues adds up those of all replicas.
func (c *crew) queues(ctx context.Context) (sum queues, err error) {
	for _, r := range c.replicas {
		var now queues
		if err := r.ask(ctx, askQueues, &now); err != nil {
			return sum, err
		}
		sum.Taken += now.Taken
		sum.Late += now.Late
	}
	return sum, nil
}
