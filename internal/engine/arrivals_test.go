package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/work"
)

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
				r := testRota(t)
				queue := make(chan types.NamespacedName, 2000)
				var c *controllers.Controller
				most := 0
				c, err := r.newTestController("test", schema.GroupKind{Kind: "ConfigMap"},
					func(keys []types.NamespacedName, _ work.Priority) {
						for _, key := range keys {
							if c.Add(key) {
								queue <- key
							}
						}
						most = max(most, len(queue))
					})
				if err != nil {
					t.Fatal(err)
				}
				all := r.cfg.Slots.All()
				r.share.Hold(all)
				r.gate.SetDeadline(time.Hour)
				r.gate.Open(all, 7)
				var keys []types.NamespacedName
				for n := range test.objects {
					keys = append(keys, types.NamespacedName{Namespace: "a", Name: fmt.Sprint(n)})
				}
				var workers sync.WaitGroup
				for range test.workers {
					workers.Go(func() {
						for key := range queue {
							c.Take(key)
							if _, ok := c.Admit(t.Context(), key); !ok {
								t.Errorf("%s is not admitted", key)
							}
							<-time.After(test.takes)
							c.Done(key)
						}
					})
				}
				<-time.After(time.Millisecond) // at time 0 nothing counts as waiting
				begun := time.Now()
				c.Trickle(t.Context(), keys)
				close(queue)
				workers.Wait()
				if took := time.Since(begun); took > test.most {
					t.Errorf("all were reconciled after %v, want %v", took, test.most)
				}
				if most > 16 {
					t.Errorf("%d waited in the queue at a time, want %d at most", most, 16)
				}
			})
		})
	}
}

// R8: arrivals whose reconciles take long do not keep others from coming, even while nothing else gets a processor in
// time: as many are under way as there are workers.
func TestR8SlowArrivalsDoNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		queue := make(chan types.NamespacedName, 2000)
		var c *controllers.Controller
		c, err := r.newTestController("test", schema.GroupKind{Kind: "ConfigMap"},
			func(keys []types.NamespacedName, _ work.Priority) {
				for _, key := range keys {
					if c.Add(key) {
						queue <- key
					}
				}
			})
		if err != nil {
			t.Fatal(err)
		}
		all := r.cfg.Slots.All()
		r.share.Hold(all)
		r.gate.SetDeadline(time.Hour)
		r.gate.Open(all, 7)
		var keys []types.NamespacedName
		for n := range 60 {
			keys = append(keys, types.NamespacedName{Namespace: "a", Name: fmt.Sprint(n)})
		}
		var workers sync.WaitGroup
		for range 20 {
			workers.Go(func() {
				for key := range queue {
					c.Take(key)
					if _, ok := c.Admit(t.Context(), key); !ok {
						t.Errorf("%s is not admitted", key)
					}
					<-time.After(time.Minute)
					c.Done(key)
				}
			})
		}
		<-time.After(time.Millisecond)
		begun := time.Now()
		// A change after the other waits for a worker for 15 ms, which makes arrivals few.
		ctx, stop := context.WithCancel(t.Context())
		var changes sync.WaitGroup
		changes.Go(func() {
			key := types.NamespacedName{Namespace: "b", Name: "b"}
			for ctx.Err() == nil {
				c.Add(key)
				<-time.After(15 * time.Millisecond)
				c.Take(key)
				if _, ok := c.Admit(t.Context(), key); !ok {
					t.Errorf("%s is not admitted", key)
				}
				c.Done(key)
			}
		})
		c.Trickle(t.Context(), keys)
		close(queue)
		workers.Wait()
		if took := time.Since(begun); took > 4*time.Minute {
			t.Errorf("all were reconciled after %v: want a little more than 3 minutes, for 60 by 20 workers", took)
		}
		stop()
		changes.Wait()
	})
}
