package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/store/memory"
)

// patient is a queue of Secrets whose syncs a test decides.
type patient struct {
	*testing.T
	rota   *Engine
	memory *memory.Store
	q      *Queue[cache.ObjectName]
	sync   func(context.Context, cache.ObjectName) error
	does   func() error
}

// newPatient owns all slots, for a bubble of synctest.
func newPatient(t *testing.T) *patient {
	p := &patient{T: t, rota: testRota(t), memory: memory.New()}
	p.rota.store = p.memory.Client(nil)
	p.q, _ = testQueue(t, p.rota)
	p.rota.gate.SetDeadline(24 * time.Hour)
	all := p.rota.cfg.Slots.All()
	p.rota.share.Hold(all)
	p.rota.gate.Open(all, 7)
	p.sync = p.q.Admit(func(context.Context, cache.ObjectName) error { return p.does() })
	return p
}

// work syncs an object once.
func (p *patient) work(name string, does func() error) {
	p.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
	if err := p.q.queue.Controller().Informer.GetIndexer().Add(secret); err != nil {
		p.Error(err)
	}
	p.reconcile(name, does)
}

// reconcile syncs an object that may be gone, as the workers of client-go's controllers do.
func (p *patient) reconcile(name string, does func() error) {
	p.Helper()
	item := cache.ObjectName{Namespace: "a", Name: name}
	p.q.Add(item)
	got, _ := p.q.Get()
	if got != item {
		p.Errorf("got %v, want %v", got, item)
	}
	p.does = does
	defer p.q.Done(item)
	defer func() { _ = recover() }() // as with utilruntime.ReallyCrash = false
	if p.sync(p.Context(), item) == nil {
		p.q.Forget(item)
	}
}

// delete deletes an object, of which no sync comes.
func (p *patient) delete(name string) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
	require.NoError(p, p.q.queue.Controller().Informer.GetIndexer().Delete(secret))
}

// want compares what the member says of its objects. Slots are left out.
func (p *patient) want(want coverage.Health) {
	p.Helper()
	got := p.rota.Status().Health
	for i := range got.Worst {
		got.Worst[i].Slot = 0
	}
	for i := range want.Worst {
		want.Worst[i].Controller, want.Worst[i].Kind = "test", secretKind
		want.Worst[i].Object.Namespace = "a"
	}
	if diff := cmp.Diff(want, got); diff != "" {
		p.Error(diff)
	}
}

func fails(err error) func() error { return func() error { return err } }

// A member says of an object that keeps failing since when, how often, and why, until it succeeds, its slot goes, or it
// is gone.
func TestObjectsThatFailAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		denied := errors.New("denied:\n  spec.host")
		p.work("fine", fails(nil))
		first := time.Now().Truncate(time.Second)
		for range 2 {
			p.work("bad", fails(denied))
			time.Sleep(time.Minute)
		}
		p.want(coverage.Health{}) // conflicts fail as often
		p.work("bad", fails(denied))
		bad := coverage.KeyHealth{Object: types.NamespacedName{Name: "bad"}, Failures: 3, Since: first,
			Last: first.Add(2 * time.Minute), Error: "denied: spec.host"}
		p.want(coverage.Health{Failing: 1, Worst: []coverage.KeyHealth{bad}})

		p.work("fine", fails(nil)) // that others succeed changes nothing
		p.want(coverage.Health{Failing: 1, Worst: []coverage.KeyHealth{bad}})
		p.work("bad", fails(nil))
		p.want(coverage.Health{})

		for range 3 {
			p.work("bad", fails(denied))
		}
		p.delete("bad")
		p.want(coverage.Health{})
		for range 3 {
			p.work("bad", fails(denied))
		}
		p.q.queue.Controller().Forget(slot.SetOf(slot.Range{First: 0, Last: slot.Slot(p.rota.cfg.Slots - 1)}))
		p.want(coverage.Health{})
	})
}

// Workers that tell their queue only to try again, and those that panic, are heard, too.
func TestFailuresWithoutErrorAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		at := time.Now().Truncate(time.Second)
		for range 4 {
			p.work("crash", func() error { panic("poison") })
		}
		for range 3 {
			p.work("again", func() error {
				p.q.AddRateLimited(cache.ObjectName{Namespace: "a", Name: "again"})
				return nil
			})
		}
		p.want(coverage.Health{Failing: 2, Worst: []coverage.KeyHealth{
			{Object: types.NamespacedName{Name: "again"}, Failures: 3, Since: at, Last: at},
			{Object: types.NamespacedName{Name: "crash"}, Failures: 4, Panics: 4, Since: at, Last: at,
				Error: "the reconciler panicked: the log has the stack"},
		}})
	})
}

// The object of a panic is told before the worker is done with it, since that may be the end of the process. A
// reconciler that panics at everything does not flood the API server.
func TestPanicsAreToldBeforeTheProcessEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		p.work("fine", fails(errors.New("denied")))
		if n := len(p.memory.Notes()); n != 0 {
			t.Errorf("%d events of an error", n)
		}
		p.work("poison", func() error { panic("poison") })
		notes := p.memory.Notes()
		want := fmt.Sprintf("controller test panicked at Secret a/poison in slot %d. ",
			slotOf(p.rota, types.NamespacedName{Namespace: "a", Name: "poison"}))
		if len(notes) != 1 || notes[0].Reason != "ReconcilePanicked" || !strings.HasPrefix(notes[0].Message, want) ||
			!strings.HasSuffix(notes[0].Message, " (process "+p.rota.process+")") {
			t.Errorf("%+v, want %q, and the process", notes, want)
		}
		for n := range 20 {
			p.work(fmt.Sprint(n), func() error { panic("poison") })
		}
		if n := len(p.memory.Notes()); n != 5 {
			t.Errorf("%d events of 21 panics, want 5", n)
		}
	})
}

// A member says since when a reconcile has been in flight once that is for long, and what came of those before.
func TestReconcilesThatHangAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		p.work("hangs", fails(errors.New("denied")))
		failed := time.Now().Truncate(time.Second)
		time.Sleep(time.Minute)
		release := make(chan struct{})
		begun := time.Now().Truncate(time.Second)
		go p.work("hangs", func() error {
			<-release
			return nil
		})
		time.Sleep(coverage.HangingAfter - time.Second)
		p.want(coverage.Health{})
		time.Sleep(2 * time.Second)
		p.want(coverage.Health{Hanging: 1, Worst: []coverage.KeyHealth{{Object: types.NamespacedName{Name: "hangs"},
			Running: begun, Failures: 1, Since: failed, Last: failed, Error: "denied"}}})
		p.q.Add(cache.ObjectName{Namespace: "a", Name: "waits"})
		time.Sleep(10 * time.Second)
		want := []coverage.Blocked{{Controller: "test", Workers: 1, Waiting: 1, For: 10 * time.Second}}
		if got := p.rota.blocked(); !slices.Equal(got, want) {
			t.Errorf("blocked: %+v, want %+v", got, want)
		}
		close(release)
		synctest.Wait()
		p.want(coverage.Health{})
	})
}

// A controller whose reconciles all fail is told of, and once they succeed again. Deletions, of which there is nothing to
// reconcile, are no success.
func TestControllersThatFailAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		r := p.rota
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.watchFailing(ctx)
		var outcome error
		deleted := func(name string) {
			p.delete(name)
			p.reconcile(name, fails(nil))
		}
		work := func(count int) {
			for n := range count {
				p.work(fmt.Sprint(n), fails(outcome))
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
			for _, n := range p.memory.Notes() {
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

// An object that failed before its slot was lost and came back is counted anew. So is its backoff: with the former one, it
// would count as well for as long as that lasts.
func TestBackoffsBeginAnewWithTheSlot(t *testing.T) {
	for _, lost := range []bool{false, true} {
		r := testRota(t)
		q, inner := testQueue(t, r)
		own(r, testItem)
		q.Add(testItem)
		for range 2 {
			item, _ := q.Get()
			if _, ok := q.queue.Controller().Admit(t.Context(), types.NamespacedName(item)); !ok {
				t.Fatal("not admitted")
			}
			q.AddRateLimited(item)
			q.Done(item)
			if lost {
				q.queue.Controller().Forget(slot.SetOf(slot.Range{First: 0, Last: slot.Slot(r.cfg.Slots - 1)}))
			}
			q.Add(item) // it comes with its slot
		}
		if n := inner.NumRequeues(testItem); n != map[bool]int{false: 2, true: 1}[lost] {
			t.Errorf("lost %t: %d failures", lost, n)
		}
	}
}
