package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/store/memory"
)

func TestControllersThatFailAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		shared := memory.New()
		r.store = shared.Client(nil)
		q, _ := testQueue(t, r)
		r.gate.SetDeadline(24 * time.Hour)
		all := slot.SetOf(slot.Range{First: 0, Last: slot.Slot(r.cfg.Slots - 1)})
		r.share.Hold(all)
		r.gate.Open(all, 7)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.watchFailing(ctx)

		var outcome error
		sync := q.Admit(func(_ context.Context, item cache.ObjectName) error {
			if !r.share.Exists(secretKind, types.NamespacedName(item)) {
				return nil // as reconcilers do
			}
			return outcome
		})
		objects := q.queue.Controller().Informer.GetIndexer()
		deleted := func(name string) {
			gone := cache.ObjectName{Namespace: "a", Name: name}
			_ = objects.Delete(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}})
			q.Add(gone)
			item, _ := q.Get()
			if err := sync(t.Context(), item); err != nil {
				t.Error(err)
			}
			q.Done(item)
		}
		work := func(count int) {
			for n := range count {
				noError(t, objects.Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a",
					Name: fmt.Sprint(n)}}))
				q.Add(cache.ObjectName{Namespace: "a", Name: fmt.Sprint(n)})
				item, _ := q.Get()
				if err := sync(t.Context(), item); err == nil {
					q.Forget(item)
				}
				q.Done(item)
			}
		}
		look := func(when string, failing, never bool, reasons string) {
			t.Helper()
			time.Sleep(time.Minute + failingPeriod)
			synctest.Wait()
			s := r.Status().Failing
			if got := len(s) > 0; got != failing {
				t.Errorf("%s: failing controllers %v, want some: %t", when, s, failing)
			}
			if failing && len(s) > 0 && (s[0].Controller != "test" || s[0].Never != never || !errors.Is(s[0].Err, outcome)) {
				t.Errorf("%s: %+v, want controller test, never succeeded: %t, error %v", when, s[0], never, outcome)
			}
			if got, _ := metricOf(t, r, "rota_controller_failing"); got != float64(len(s)) {
				t.Errorf("%s: rota_controller_failing is %v, want %d", when, got, len(s))
			}
			var told []string
			for _, n := range shared.Notes() {
				told = append(told, n.Reason)
			}
			if got := strings.Join(told, " "); got != reasons {
				t.Errorf("%s: events %q, want %q", when, got, reasons)
			}
		}
		look("nothing to do", false, false, "")
		outcome = errors.New("the cache is not started")
		work(3)
		deleted("another")
		look("all fail since the start", true, true, "ReconcilesFail")
		work(9)
		deleted("8")
		look("all fail on", true, true, "ReconcilesFail")
		outcome = nil
		work(1)
		look("one succeeded", false, false, "ReconcilesFail ReconcilesSucceed")
		outcome = errors.New("broken backend")
		work(20)
		look("all fail again", true, false, "ReconcilesFail ReconcilesSucceed ReconcilesFail")
		for n := range 20 {
			deleted(fmt.Sprint(n))
		}
		look("none is left", false, false, "ReconcilesFail ReconcilesSucceed ReconcilesFail ReconcilesSucceed")
	})
}

// Workers that never return an error to Admit tell by AddRateLimited.
func TestKeysAddedWithABackOffHaveFailed(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(q *Queue[cache.ObjectName])
		want int
	}{
		{"a back-off", func(q *Queue[cache.ObjectName]) { q.AddRateLimited(testItem) }, 1},
		{"a timer", func(q *Queue[cache.ObjectName]) { q.Forget(testItem); q.AddAfter(testItem, time.Hour) }, 0},
		{"said to have succeeded", func(q *Queue[cache.ObjectName]) {
			q.queue.Controller().Ended(types.NamespacedName(testItem), nil)
			q.AddRateLimited(testItem)
		}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := testRota(t)
			q, _ := testQueue(t, r)
			own(r, testItem)
			q.Add(testItem)
			item, _ := q.Get()
			if _, ok := q.queue.Controller().Admit(t.Context(), types.NamespacedName(item)); !ok {
				t.Fatal("not admitted")
			}
			test.end(q)
			q.Done(item)
			if got := q.queue.Controller().Sum().Failures; got != test.want {
				t.Errorf("%d failures, want %d", got, test.want)
			}
		})
	}
}
