package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
)

// Objects that come together are reconciled at once, and asked for the same delay. They do not stay in step, and none
// comes later than asked. Short delays are left alone.
func TestR8TimersAreSpread(t *testing.T) {
	const objects = 600
	for _, test := range []struct {
		delay         time.Duration
		peakPerSecond int // from the second period on
		most          int // of the reconciles in the first period
	}{
		{60 * time.Second, 3 * objects / 60, 2 * objects},
		{5 * time.Second, objects, objects},
	} {
		t.Run(test.delay.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := testRota(t)
				q, _ := testQueue(t, r)
				last, came := map[cache.ObjectName]time.Duration{}, map[int]int{} // the latter by second
				opened := time.Duration(0)
				reconcile := q.Admit(func(_ context.Context, item cache.ObjectName) error {
					now := r.now()
					if before, known := last[item]; known && now-before > test.delay+time.Second {
						t.Errorf("%s comes after %v", item, now-before)
					}
					last[item] = now
					came[int((now-opened)/time.Second)]++
					q.AddAfter(item, test.delay)
					return nil
				})
				var worker sync.WaitGroup
				worker.Go(func() {
					for item, shutdown := q.Get(); !shutdown; item, shutdown = q.Get() {
						noError(t, reconcile(t.Context(), item))
						q.Done(item)
					}
				})
				time.Sleep(time.Minute)
				opened = r.now()
				openSlots(r, r.cfg.Slots.All())
				testHolder(t, r).Open(r.cfg.Slots.All(), 7)
				for i := range objects {
					q.Add(cache.ObjectName{Namespace: "a", Name: fmt.Sprintf("m%d", i)})
				}
				period := int(test.delay / time.Second)
				time.Sleep(4*test.delay + test.delay/2)
				q.ShutDown()
				worker.Wait()
				first, peak := 0, 0
				for second, n := range came {
					if second < period {
						first += n
					} else {
						peak = max(peak, n)
					}
				}
				if len(last) != objects || came[0] < objects || first > test.most {
					t.Errorf("%d objects, %d at once, %d in the first period; want %d, as many, and %d at most", len(last),
						came[0], first, objects, test.most)
				}
				if peak > test.peakPerSecond || (test.peakPerSecond == objects) != (peak == objects) {
					t.Errorf("%d in one second later, want %d at most", peak, test.peakPerSecond)
				}
			})
		})
	}
}
