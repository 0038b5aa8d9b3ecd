package digest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"

	"github.com/rota-dev/rota/examples/notify/destination"
	"github.com/rota-dev/rota/examples/notify/notice"
)

// ear is a destination that remembers the digests it took.
type ear struct {
	name string

	mu       sync.Mutex
	got      []string
	down     error
	takes    time.Duration // to answer
	accepted map[string]bool
	next     time.Time
	dropped  []string
}

func (e *ear) with(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

func (e *ear) Name() string            { return e.name }
func (e *ear) Settled(id string)       { e.with(func() { delete(e.accepted, id) }) }
func (e *ear) Dropped(cause string)    { e.with(func() { e.dropped = append(e.dropped, cause) }) }
func (e *ear) fails(err error)         { e.with(func() { e.down = err }) }
func (e *ear) answers(d time.Duration) { e.with(func() { e.takes = d }) }

func (e *ear) Accepted(id string) (ok bool) {
	e.with(func() { ok = e.accepted[id] })
	return ok
}

func (e *ear) Wait(string) (wait time.Duration) {
	e.with(func() { wait = max(0, time.Until(e.next)) })
	return wait
}

func (e *ear) heard() (got []string) {
	e.with(func() { got = slices.Clone(e.got) })
	return got
}

func (e *ear) lost() (dropped []string) {
	e.with(func() { dropped = slices.Clone(e.dropped) })
	return dropped
}

func (e *ear) answer(m destination.Message) (time.Duration, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down != nil {
		e.next = time.Now().Add(time.Minute)
		return e.takes, e.down
	}
	d := m.(notice.Digest)
	id, _ := d.Head()
	e.got = append(e.got, fmt.Sprintf("%s %d", strings.TrimPrefix(id, "ops-notify-digest-"), d.Failing))
	return e.takes, nil
}

func (e *ear) Send(ctx context.Context, _ string, m destination.Message) error {
	takes, err := e.answer(m)
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err == nil {
		id, _ := m.Head()
		e.with(func() { e.accepted[id] = true })
	}
	return err
}

// town is a cluster with two destinations, at the fake time of a bubble.
type town struct {
	t          *testing.T
	client     *fake.Clientset
	audit, ops *ear
	stop       func() error

	mu      sync.Mutex
	failing int
	broken  error // of the API server's lists
}

// inTown begins at 2026-01-02 06:00 in Berlin. Digests are due at 08:00.
func inTown(t *testing.T, f func(*town)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &town{t: t, client: fake.NewClientset(), failing: 1,
			audit: &ear{name: "audit", accepted: map[string]bool{}}, ops: &ear{name: "ops", accepted: map[string]bool{}}}
		w.until("2026-01-02 06:00")
		f(w)
		if w.stop != nil {
			w.leave()
		}
	})
}

func (w *town) fails(n int, broken error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing, w.broken = n, broken
}

func (w *town) until(local string) {
	w.t.Helper()
	at, err := time.ParseInLocation("2006-01-02 15:04", local, scheduleOf(w.t, "08:00", "Europe/Berlin").in)
	if err != nil || at.Before(time.Now()) {
		w.t.Fatal(local, err)
	}
	time.Sleep(time.Until(at))
	synctest.Wait()
}

// member starts a process that runs the digest, again after errors.
func (w *town) member() {
	w.t.Helper()
	d := &Daily{
		schedule: scheduleOf(w.t, "08:00", "Europe/Berlin"), zone: "Europe/Berlin", now: time.Now, poll: time.Minute,
		receivers: []receiver{w.audit, w.ops},
		store:     store{api: w.client.CoreV1().ConfigMaps("ops"), namespace: "ops", name: "notify-digest", notifier: "notify"},
		look: func(context.Context) (notice.Summary, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return notice.Summary{Failing: w.failing}, w.broken
		},
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() {
		for {
			err := d.Run(ctx)
			if ctx.Err() != nil {
				ended <- err
				return
			}
			time.Sleep(time.Minute)
		}
	}()
	w.stop = func() error { cancel(); return <-ended }
	synctest.Wait()
}

// leave returns how long the process took to end.
func (w *town) leave() time.Duration {
	w.t.Helper()
	begun := time.Now()
	_ = w.stop()
	w.stop = nil
	return time.Since(begun)
}

// told checks what both destinations have got.
func (w *town) told(want ...string) {
	w.t.Helper()
	for _, e := range []*ear{w.audit, w.ops} {
		if diff := cmp.Diff(want, e.heard()); diff != "" {
			w.t.Errorf("%s was told (-want +got):\n%s", e.name, diff)
		}
	}
}

func TestEachDay(t *testing.T) {
	inTown(t, func(w *town) {
		w.member()
		w.until("2026-01-02 07:59")
		w.told()
		w.until("2026-01-02 08:01")
		w.told("2026-01-02 1")
		w.fails(2, nil)
		w.until("2026-01-03 07:59")
		w.told("2026-01-02 1")
		w.until("2026-01-04 08:01")
		w.told("2026-01-02 1", "2026-01-03 2", "2026-01-04 2")
	})
}

// TestFirst: what was due before the digest was first configured is not told.
func TestFirst(t *testing.T) {
	inTown(t, func(w *town) {
		w.until("2026-01-02 09:00")
		w.member()
		w.until("2026-01-03 07:59")
		w.told()
		w.until("2026-01-03 08:01")
		w.told("2026-01-03 1")
	})
}

// TestMoves: who comes next goes on where the former one stopped.
func TestMoves(t *testing.T) {
	inTown(t, func(w *town) {
		w.member()
		for _, at := range []string{"2026-01-02 07:00", "2026-01-02 08:01", "2026-01-02 12:00", "2026-01-03 09:00"} {
			w.until(at)
			w.leave()
			w.member()
		}
		w.told("2026-01-02 1", "2026-01-03 1")
	})
}

// TestClocks: a digest that somebody whose clock is ahead has told is not told again.
func TestClocks(t *testing.T) {
	inTown(t, func(w *town) {
		ahead := store{api: w.client.CoreV1().ConfigMaps("ops"), namespace: "ops", name: "notify-digest", notifier: "notify"}
		if _, err := ahead.write(t.Context(), stored{}, state{Day: "2026-01-03"}); err != nil {
			t.Fatal(err)
		}
		w.member()
		w.until("2026-01-04 07:59")
		w.told()
		w.until("2026-01-04 08:01")
		w.told("2026-01-04 1")
	})
}

// TestClockFarAhead: a clock that was far ahead once does not end the digests.
func TestClockFarAhead(t *testing.T) {
	inTown(t, func(w *town) {
		ahead := store{api: w.client.CoreV1().ConfigMaps("ops"), namespace: "ops", name: "notify-digest", notifier: "notify"}
		if _, err := ahead.write(t.Context(), stored{}, state{Day: "2027-01-03"}); err != nil {
			t.Fatal(err)
		}
		w.member()
		w.until("2026-01-02 08:01")
		w.told("2026-01-02 1")
		w.until("2026-01-03 08:01")
		w.told("2026-01-02 1", "2026-01-03 1")
	})
}

// TestMissed: a digest is told late, but not too late.
func TestMissed(t *testing.T) {
	inTown(t, func(w *town) {
		w.member()
		w.leave()
		w.until("2026-01-02 13:59")
		w.member()
		w.told("2026-01-02 1")
		w.leave()
		w.until("2026-01-03 14:01")
		w.member()
		w.until("2026-01-04 07:59")
		w.told("2026-01-02 1")
		w.until("2026-01-04 09:00")
		w.told("2026-01-02 1", "2026-01-04 1")
		w.leave()
		w.until("2026-01-08 09:00")
		w.member()
		w.until("2026-01-08 23:00")
		w.told("2026-01-02 1", "2026-01-04 1", "2026-01-08 1")
	})
}

// TestAway: a digest waits for a destination that is away, also for the next process, and until the next digest is due.
// The other destination does not wait, and what is told is what failed at the time.
func TestAway(t *testing.T) {
	inTown(t, func(w *town) {
		w.member()
		w.ops.fails(errors.New("503"))
		w.until("2026-01-02 12:00")
		w.fails(7, nil)
		w.leave()
		w.member()
		w.until("2026-01-03 01:00")
		w.ops.fails(nil)
		w.until("2026-01-03 01:02")
		w.told("2026-01-02 1")
		w.ops.fails(errors.New("503"))
		w.until("2026-01-04 09:00")
		w.ops.fails(nil)
		w.until("2026-01-04 09:02")
		if diff := cmp.Diff([]string{"2026-01-02 1", "2026-01-04 7"}, w.ops.heard()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{destination.TooMany}, w.ops.lost()); diff != "" {
			t.Errorf("dropped (-want +got):\n%s", diff)
		}
		if got, dropped := w.audit.heard(), w.audit.lost(); len(got) != 3 || len(dropped) > 0 {
			t.Errorf("the other was told %q, %q were dropped", got, dropped)
		}
	})
}

func TestRefused(t *testing.T) {
	inTown(t, func(w *town) {
		w.member()
		w.ops.fails(&destination.RefusedError{Status: "400"})
		w.until("2026-01-02 09:00")
		w.ops.fails(nil)
		w.until("2026-01-03 09:00")
		if got, dropped := w.ops.heard(), w.ops.lost(); len(got) != 1 || len(dropped) != 1 || dropped[0] != destination.Refused {
			t.Errorf("told %q, dropped %q", got, dropped)
		}
	})
}

// TestInFlight: a process that has to stop waits for the answer, and crosses the destination out, unless that takes too
// long.
func TestInFlight(t *testing.T) {
	inTown(t, func(w *town) {
		w.member()
		w.ops.answers(3 * time.Second)
		w.until("2026-01-02 08:00")
		time.Sleep(500 * time.Millisecond)
		if took := w.leave(); took < time.Second || took > grace {
			t.Errorf("it left after %s", took)
		}
		w.member()
		w.until("2026-01-02 09:00")
		w.told("2026-01-02 1")
		w.ops.answers(time.Minute)
		w.until("2026-01-03 08:00")
		time.Sleep(10 * time.Second)
		if took := w.leave(); took != grace {
			t.Errorf("it left after %s, want %s", took, grace)
		}
		w.ops.answers(0)
		w.ops.with(func() { clear(w.ops.accepted) }) // they were of the process that is gone
		w.member()
		w.until("2026-01-03 09:00")
		if diff := cmp.Diff([]string{"2026-01-02 1", "2026-01-03 1", "2026-01-03 1"}, w.ops.heard()); diff != "" {
			t.Errorf("the double (-want +got):\n%s", diff)
		}
	})
}

// TestBrokenAPI: lists and writes that fail are repeated, and double nothing.
func TestBrokenAPI(t *testing.T) {
	inTown(t, func(w *town) {
		var writes atomic.Int32
		w.client.PrependReactor("update", "configmaps", func(core.Action) (bool, runtime.Object, error) {
			if n := writes.Add(1); n == 2 || n == 3 {
				return true, nil, errors.New("timeout")
			}
			return false, nil, nil
		})
		w.member()
		w.fails(1, errors.New("forbidden"))
		w.until("2026-01-02 10:00")
		w.told()
		w.fails(1, nil)
		w.until("2026-01-02 11:00")
		w.told("2026-01-02 1")
		if n := writes.Load(); n < 5 {
			t.Errorf("%d writes, want one that makes the digest, two that fail and two", n)
		}
	})
}

// TestConflict: of two processes that both think that it is theirs, one tells a day's digest.
func TestConflict(t *testing.T) {
	inTown(t, func(w *town) {
		w.client.PrependReactor("update", "configmaps", optimistic(w.client))
		w.member()
		first := w.stop
		w.member()
		w.until("2026-01-02 09:00")
		w.told("2026-01-02 1")
		_ = first()
	})
}

// optimistic makes updates of older versions conflicts, as the API server does.
func optimistic(client *fake.Clientset) core.ReactionFunc {
	var mu sync.Mutex
	version := 0
	return func(a core.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		obj := a.(core.UpdateAction).GetObject().(metav1.Object)
		live, err := client.Tracker().Get(a.GetResource(), a.GetNamespace(), obj.GetName())
		if err != nil || live.(metav1.Object).GetResourceVersion() != obj.GetResourceVersion() {
			return true, nil, errors.New("conflict")
		}
		version++
		obj.SetResourceVersion(fmt.Sprint(version))
		return false, nil, nil
	}
}

// TestForeign: a record that is none is not overwritten.
func TestForeign(t *testing.T) {
	s := store{api: fake.NewClientset().CoreV1().ConfigMaps("ops"), namespace: "ops", name: "notify-digest", notifier: "notify"}
	if _, err := s.write(t.Context(), stored{}, state{Day: "today"}); err != nil {
		t.Fatal(err)
	}
	err := (&Daily{store: s, now: time.Now}).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "configmap ops/notify-digest") || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("got %v", err)
	}
}
