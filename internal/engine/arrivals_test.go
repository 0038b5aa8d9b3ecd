package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/work"
)

// crew is a controller of a member with all slots open, and the workers of its queue.
type crew struct {
	*controllers.Controller
	t       *testing.T
	queue   chan types.NamespacedName
	most    int // that waited in the queue at a time
	workers sync.WaitGroup
}

// newCrew starts workers, each of which takes so long for a key.
func newCrew(t *testing.T, workers int, takes time.Duration) *crew {
	r := testRota(t)
	c := &crew{t: t, queue: make(chan types.NamespacedName, 2000)}
	c.Controller = testController(t, r, "test", labKind, func(keys []types.NamespacedName, _ work.Priority) {
		for _, key := range keys {
			if c.Add(key) {
				c.queue <- key
			}
		}
		c.most = max(c.most, len(c.queue))
	})
	openSlots(r, r.cfg.Slots.All())
	for range workers {
		c.workers.Go(func() {
			for key := range c.queue {
				c.reconcile(key, takes)
			}
		})
	}
	<-time.After(time.Millisecond) // at time 0 nothing counts as waiting
	return c
}

func (c *crew) reconcile(key types.NamespacedName, takes time.Duration) {
	c.Take(key)
	if _, ok := c.Admit(c.t.Context(), key); !ok {
		c.t.Errorf("%s is not admitted", key)
	}
	<-time.After(takes)
	c.Done(key)
}

// arrive has objects arrive, and returns how long it takes until all are reconciled.
func (c *crew) arrive(objects int) time.Duration {
	var keys []types.NamespacedName
	for n := range objects {
		keys = append(keys, types.NamespacedName{Namespace: "a", Name: fmt.Sprint(n)})
	}
	begun := time.Now()
	c.Trickle(c.t.Context(), keys)
	close(c.queue)
	c.workers.Wait()
	return time.Since(begun)
}

// R8: the objects of slots that were handed over come as fast as workers take them, so that timers which the move
// dropped are late by little, and few of them wait in the queue, so that a change does not wait for long in a queue
// without priorities.
func TestR8ArrivalsComeAsWorkersTakeThem(t *testing.T) {
	for _, test := range []struct {
		workers, objects int
		takes, most      time.Duration
	}{
		{5, 1000, 10 * time.Millisecond, 4 * time.Second},
		{1, 334, 2 * time.Millisecond, 2 * time.Second},
		{1, 50, time.Second, 52 * time.Second},
	} {
		t.Run(fmt.Sprintf("%d workers, %v each", test.workers, test.takes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(t, test.workers, test.takes)
				if took := c.arrive(test.objects); took > test.most {
					t.Errorf("all were reconciled after %v, want %v", took, test.most)
				}
				if c.most > 16 {
					t.Errorf("%d waited in the queue at a time, want %d at most", c.most, 16)
				}
			})
		})
	}
}

// R8: arrivals whose reconciles take long do not keep others from coming, even while nothing else gets a processor in
// time: as many are under way as there are workers.
func TestR8SlowArrivalsDoNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 20, time.Minute)
		// A change after the other waits for a worker for 15 ms, which makes arrivals few.
		ctx, stop := context.WithCancel(t.Context())
		var changes sync.WaitGroup
		changes.Go(func() {
			key := types.NamespacedName{Namespace: "b", Name: "b"}
			for ctx.Err() == nil {
				c.Add(key)
				<-time.After(15 * time.Millisecond)
				c.reconcile(key, 0)
			}
		})
		if took := c.arrive(60); took > 4*time.Minute {
			t.Errorf("all were reconciled after %v: want a little more than 3 minutes, for 60 by 20 workers", took)
		}
		stop()
		changes.Wait()
	})
}
