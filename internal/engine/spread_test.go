package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/test/require"
)

// Objects that come together are reconciled at once, and ask for the same delay. They do not stay in step, and none comes
// later than asked.
func TestR8TimersAreSpread(t *testing.T) {
	const objects, period = 600, 60
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		q, _ := testQueue(t, r)
		last, came := map[cache.ObjectName]time.Duration{}, map[int]int{} // the latter by second
		opened := time.Duration(0)
		reconcile := q.Admit(func(_ context.Context, item cache.ObjectName) error {
			now := r.now()
			if before, known := last[item]; known && now-before > (period+1)*time.Second {
				t.Errorf("%s comes after %v", item, now-before)
			}
			last[item] = now
			came[int((now-opened)/time.Second)]++
			q.AddAfter(item, period*time.Second)
			return nil
		})
		var worker sync.WaitGroup
		worker.Go(func() {
			for item, shutdown := q.Get(); !shutdown; item, shutdown = q.Get() {
				require.NoError(t, reconcile(t.Context(), item))
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
		time.Sleep(4*period*time.Second + period*time.Second/2)
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
		if came[0] < objects || first > 2*objects {
			t.Errorf("%d reconciles at once, %d in the first period; want %d, and twice as many at most", came[0], first, objects)
		}
		if peak > 3*objects/period {
			t.Errorf("%d in one second later, want %d at most", peak, 3*objects/period)
		}
	})
}
