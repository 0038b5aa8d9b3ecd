package controller

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
)

// sweepPeriod is the time between two looks at all records.
const sweepPeriod = time.Second

// Run runs controllers until ctx ends, with so many workers each, and returns when all workers have.
func Run(ctx context.Context, controllers []*Controller, records *Records, workers int) {
	var informers, work sync.WaitGroup
	informers.Go(func() { records.hints.RunWithContext(ctx) })
	for _, c := range controllers {
		informers.Go(func() { c.objects.RunWithContext(ctx) })
	}
	for _, c := range controllers {
		work.Go(func() { c.run(ctx, workers) })
	}
	work.Wait()
	informers.Wait()
}

func (c *Controller) run(ctx context.Context, workers int) {
	if !cache.WaitForCacheSync(ctx.Done(), c.objects.HasSynced, c.records.hints.HasSynced) {
		return
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	wg.Go(func() { c.sweeping(ctx) })
	<-ctx.Done()
	c.queue.ShutDown()
	wg.Wait()
}

func (c *Controller) next(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.Sync(ctx, key); err != nil {
		runtime.HandleErrorWithContext(ctx, err, "Cannot tell all; trying again", "object", c.turn(key))
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

// sweeping adds the keys of records that events do not: objects that were deleted while nobody looked, and notices of
// objects that are gone.
func (c *Controller) sweeping(ctx context.Context) {
	tick := time.NewTicker(sweepPeriod)
	defer tick.Stop()
	for {
		c.tidy()
		for _, h := range c.records.all() {
			if h.kind == c.kind.String() && c.kind.follows(h.key.Namespace) && c.isDue(h) {
				c.queue.Add(h.key)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// isDue says whether a record is of an object that is not here, and something can be done about it now.
func (c *Controller) isDue(h hint) bool {
	if obj, err := c.cached(h.key); err != nil || obj != nil {
		return false // its events come
	}
	for _, name := range h.waiting {
		if d := c.destination(name); d == nil || d.Due(c.turn(h.key)) {
			return true
		}
	}
	return len(h.waiting) == 0
}

// tidy forgets the records of objects that are not here any more. A sync that needs one reads it again.
func (c *Controller) tidy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.known {
		if obj, err := c.cached(key); err == nil && obj == nil {
			delete(c.known, key)
		}
	}
}
