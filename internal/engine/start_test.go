package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/test/store/memory"
)

// A member takes no slots before the workers of all its controllers run, and says which it waits for.
func TestJoinsOnceWorkersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		shared := memory.New()
		r.store = shared.Client(nil)
		var controllers []*controllers.Controller
		for _, name := range []string{"first", "second"} {
			c := testController(t, r, name, secretKind, ignore)
			c.ExpectKindLate()
			controllers = append(controllers, c)
		}
		controllers[0].Explain(func() string { return "the sky is down" })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		waits := func(yes bool, words ...string) {
			t.Helper()
			time.Sleep(10 * startPatience)
			synctest.Wait()
			err := r.Ready(nil)
			if yes != (err != nil) || yes == r.state.HasJoined() {
				t.Fatalf("joined %t, not ready because of %v; want it to wait: %t", r.state.HasJoined(), err, yes)
			}
			for _, word := range words {
				if err != nil && !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
		}
		waits(true, "controller first: the sky is down", "controller second, which")
		if n := shared.Counts().Requests[memory.OpCreateLease]; n > 0 {
			t.Errorf("%d Leases before the workers run, want none", n)
		}
		notes := shared.Notes()
		if len(notes) != 1 || notes[0].Reason != "NotJoining" || !strings.Contains(notes[0].Message, "the sky is down") {
			t.Errorf("events %+v, want one that says why this member does not join", notes)
		}
		controllers[0].Started()
		waits(true, "second")
		controllers[1].Started()
		controllers[1].Started()
		waits(false)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Workers tell that they run by asking the queue.
func TestQueuesTellThatWorkersRun(t *testing.T) {
	r := testRota(t)
	q, inner := testQueue(t, r)
	inner.Add(testItem)
	if waits := r.waitsFor(); len(waits) != 2 {
		t.Errorf("waits for %q, want an informer and workers", waits)
	}
	q.Get()
	select {
	case <-q.queue.Controller().Begun():
	default:
		t.Error("the workers' first Get does not show that they run")
	}
}
