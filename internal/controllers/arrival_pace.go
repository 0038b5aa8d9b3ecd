package controllers

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/work"
)

// Arrivals are the objects of slots that were handed over. Nearly all have nothing to do, but the move dropped their
// timers (RequeueAfter). So they should be reconciled soon, without delaying changes.

const (
	// arrivalsReady is how many arrivals wait in a controller's queue at a time. In queues without priorities, changes
	// wait behind them.
	arrivalsReady = 16
	// arrivalPeriod is the time between two checks for finished arrivals.
	arrivalPeriod = 5 * time.Millisecond
)

// arrival is a key that was enqueued because its slot arrived, with the time of that.
type arrival struct {
	key types.NamespacedName
	at  time.Duration
}

// Trickle enqueues keys as fast as workers finish them and the pace allows, until all are enqueued or ctx ends.
func (c *Controller) Trickle(ctx context.Context, keys []types.NamespacedName) {
	var underway []arrival
	counted := 0 // how many of underway count for the pace
	defer func() { c.pace.done(counted) }()
	for now := c.env.Now(); len(keys) > 0; {
		var ready int
		underway, ready = c.underway(underway)
		was := counted
		counted = 0
		for _, a := range underway {
			if now-a.at < paceForgets {
				counted++
			}
		}
		c.pace.done(was - counted)
		n := c.pace.take(min(arrivalsReady-ready, len(keys)))
		if n > 0 {
			c.Enqueue(keys[:n], work.PriorityOpened)
			c.Work.With(func(k *work.Keys[types.NamespacedName, work.Flying]) {
				for _, key := range keys[:n] {
					k.Arrive(key)
					underway = append(underway, arrival{key, now})
				}
			})
			counted, keys = counted+n, keys[n:]
		}
		asleep := c.env.Now()
		wait := max(arrivalPeriod/5, arrivalPeriod-(asleep-now)) // the period includes the work of this round
		if !c.env.Runner.Sleep(ctx, wait) {
			return
		}
		now = c.env.Now()
		c.pace.tick(now, now-asleep-wait)
	}
}

// underway returns the arrivals that are queued or with a worker, and how many of them are queued.
func (c *Controller) underway(arrivals []arrival) (goes []arrival, ready int) {
	c.Work.With(func(k *keys) {
		for _, a := range arrivals {
			switch {
			case k.Ready(a.key):
				ready++
				goes = append(goes, a)
			case k.Underway(a.key):
				goes = append(goes, a)
			}
		}
	})
	return goes, ready
}

// pace bounds how many arrivals are under way in a process at a time. The bound grows until the process or a change has
// to wait for a processor or a worker, and is then halved: additive increase, multiplicative decrease (D. Chiu and R.
// Jain, Analysis of the increase and decrease algorithms for congestion avoidance, 1989). Its methods may be called
// concurrently.
type pace struct {
	mu       sync.Mutex
	limit    float64
	underway int
	// grown is when limit was last raised, cut when it was last lowered.
	grown, cut time.Duration
}

const (
	// paceStart is the first limit, and paceLeast the lowest.
	paceStart, paceLeast = 2, 1
	// paceGrowth is how much the limit grows in each arrivalPeriod.
	paceGrowth = 0.5
	// The limit falls if the process notices the end of an arrivalPeriod later than lateTick, or if a change waits for a
	// worker for longer than longWait.
	lateTick = 4 * time.Millisecond
	longWait = 10 * time.Millisecond
	// paceForgets is how long an arrival counts toward the limit. One that takes longer waits for something other than a
	// processor, or for workers that are busy with changes. So arrivals continue to come even if changes are slow.
	paceForgets = 200 * time.Millisecond
	// cutPeriod is the least time between two cuts, so that each can take effect.
	cutPeriod = 4 * arrivalPeriod
)

func newPace() *pace { return &pace{limit: paceStart} }

// take returns how many of the wanted arrivals may be enqueued now. The caller calls done for each of them once no
// worker has it any more or it no longer counts.
func (p *pace) take(wanted int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := max(0, min(wanted, int(p.limit)-p.underway))
	p.underway += n
	return n
}

// done releases n arrivals that were taken.
func (p *pace) done(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.underway -= n
}

// tick records the end of an arrivalPeriod that was noticed late.
func (p *pace) tick(now, late time.Duration) {
	if late > lateTick {
		p.slower(now)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Each concurrent Trickle calls tick. A limit that is not used does not grow, as in RFC 7661.
	if periods := min(1, float64(now-p.grown)/float64(arrivalPeriod)); float64(p.underway) >= p.limit/2 {
		p.limit += paceGrowth * periods
	}
	p.grown = now
}

// waited records how long a change has waited for a worker.
func (p *pace) waited(now func() time.Duration, wait time.Duration) {
	if wait > longWait { // rarely true; checked first because this runs for every key
		p.slower(now())
	}
}

// slower halves the limit.
func (p *pace) slower(now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now-p.cut < cutPeriod {
		return
	}
	p.limit, p.cut, p.grown = max(paceLeast, p.limit/2), now, now
}
