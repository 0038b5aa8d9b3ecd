package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/store/memory"
)

// Controllers and duties that are set up while Run waits take part. The member does not join before, nor before the
// workers of all its controllers run, and says what it waits for.
func TestJoinsAfterControllersAreSetUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		shared := memory.New()
		r.store = shared.Client(nil)
		built, certified := make(chan struct{}), make(chan struct{})
		for what, done := range map[string]chan struct{}{"the controllers to be built": built, "certificates": certified} {
			require.NoError(t, r.JoinAfter(what, done))
		}
		finished := 0
		r.setup.atEnd(func(context.Context) error { finished++; return nil })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		waits := func(words ...string) {
			t.Helper()
			time.Sleep(10 * startPatience)
			synctest.Wait()
			err := r.Ready(nil)
			if r.state.HasJoined() || err == nil {
				t.Fatalf("joined: %t, not ready because of %v; want it to wait for %q", r.state.HasJoined(), err, words)
			}
			require.ErrorSays(t, err, words...)
		}
		waits("waiting for ", "the controllers to be built", "certificates")
		if notes := shared.Notes(); len(notes) != 1 || notes[0].Reason != "NotJoining" ||
			!strings.Contains(notes[0].Message, "It waits for ") || !strings.Contains(notes[0].Message, "certificates") {
			t.Errorf("events %+v, want one that says why this member does not join", notes)
		}
		if shared.Counts().Requests[memory.OpCreateLease] > 0 || finished > 0 {
			t.Errorf("a Lease, or the end of the setup (%d), before it is done", finished)
		}
		close(certified)
		waits("the controllers to be built")
		enqueue := ignore
		c := testController(t, r, "late", secretKind, enqueue)
		c.ExpectKindLate()
		ran := make(chan struct{})
		require.NoError(t, r.Duty("report", func(context.Context) error { close(ran); return nil }))
		close(built)
		waits("controller late, which")
		c.Explain(func() string { return "the sky is down" })
		waits("controller late: the sky is down")
		c.Started()
		c.Started()
		<-r.Joined()
		<-ran
		if finished != 1 {
			t.Errorf("the end of the setup was told %d times", finished)
		}
		_, err := r.newTestController("later", secretKind, enqueue)
		require.NoError(t, err)
		r.opts.Label = true // a duty would write the labels, and duties are declared when the member joins
		_, err = r.newTestController("labeled", secretKind, enqueue)
		require.ErrorSays(t, err, "Options.Label", "JoinAfter")
		require.ErrorSays(t, r.Duty("other", func(context.Context) error { return nil }), "JoinAfter")
		cancel()
		require.NoError(t, <-done)
	})
}

func TestJoinAfterRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		r.store = memory.New().Client(nil)
		require.ErrorSays(t, r.JoinAfter("", make(chan struct{})), "say what is waited for")
		require.ErrorSays(t, r.JoinAfter("certificates", nil), "never join")
		require.NoError(t, r.JoinAfter("certificates", make(chan struct{})))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		require.ErrorSays(t, r.JoinAfter("other", make(chan struct{})), "Run was called before")
		cancel() // while it waits
		require.NoError(t, <-done)
	})
}

// TestStartsWhileTheTableIsInvalid: a replica that starts meanwhile waits, says for what, and joins once it is valid.
func TestStartsWhileTheTableIsInvalid(t *testing.T) {
	inLab(t, func(l *lab) {
		l.start("web-0")
		l.wait(2 * time.Minute)
		var before string
		set := func(value string) {
			l.memory.Do(func(o *memory.Objects) {
				o.EditTable(func(text map[string]string) { before, text["runs"] = text["runs"], value })
			})
		}
		set("0-5 nobody 7\n")
		undo := before
		late := l.start("web-1")
		l.wait(5 * time.Minute)
		select {
		case err := <-late.done:
			t.Fatalf("it ended: %v", err)
		default:
		}
		require.ErrorSays(t, late.Ready(nil), "not joined yet", "nobody is not a member")
		set(undo)
		l.wait(time.Minute)
		require.NoError(t, late.Ready(nil))
	})
}
