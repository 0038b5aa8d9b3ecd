package workers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/test/require"
)

// one takes a key.
func (x *tier) one(c *http.Client, at *replica, worker string) wire.Take {
	x.t.Helper()
	var out wire.TakeResponse
	err := await.Until(x.t.Context(), 10*time.Millisecond, 30*time.Second, func() string {
		if err := post(x.t.Context(), c, at.URL, wire.PathTake, wire.TakeRequest{Worker: worker, WaitSeconds: 5}, &out); err != nil {
			return err.Error()
		}
		if len(out.Takes) == 0 {
			return "no key"
		}
		return ""
	})
	require.NoError(x.t, err)
	return out.Takes[0]
}

// TestRefused: what is wrong is refused, and the reason told.
func TestRefused(t *testing.T) {
	t.Parallel()
	x, all := newTier(t, 30*time.Second, 1)
	a, worker, other, reader := all[0], x.user("worker", true), x.user("other", true), x.user("reader", false)
	x.create(0, 3)
	first, second := x.one(worker, a, "w"), x.one(worker, a, "w")
	if first.Name == second.Name {
		t.Fatalf("%s was handed out twice", first.Name)
	}
	ended := x.one(worker, a, "w")
	require.NoError(t, post(t.Context(), worker, a.URL, wire.PathDone, wire.DoneRequest{Token: ended.Token}, nil))
	half := len(first.Token) / 2
	mixed := first.Token[:half] + second.Token[half:]
	foreign := strings.Replace(first.Token, first.Token[3:13], "AAAAAAAAAA", 1)
	clients := map[string]*http.Client{
		"worker": worker, "other": other, "reader": reader, "nobody": {Transport: transport(t)},
		"bad bearer": {Transport: bearer{"abc", transport(t)}},
	}
	table, err := os.ReadFile("testdata/refused.txt")
	require.NoError(t, err)
	vars := strings.NewReplacer("$FIRST", first.Token, "$SECOND", second.Token, "$ENDED", ended.Token, "$MIXED", mixed,
		"$FOREIGN", foreign, "$254", strings.Repeat("a", 254), "$LONG", strings.Repeat("a", wire.MaxBody),
		"$MANY", strings.Repeat(",{}", wire.MaxTakes))
	for line := range strings.Lines(string(table)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		row := strings.Split(strings.TrimSuffix(line, "\n"), " |")
		for i := range row {
			row[i] = strings.TrimPrefix(row[i], " ")
		}
		client, path, status, problem, detail := clients[row[0]], row[1], row[2], row[3], row[4]
		err := post(t.Context(), client, a.URL, path, vars.Replace(row[5]), nil)
		var p *refusal
		if !errors.As(err, &p) || strconv.Itoa(p.Status) != status || p.Type != problem || !strings.Contains(p.Detail, detail) {
			t.Errorf("%s: %v", line, err)
		}
	}
	check := func(name string, change func(*http.Request), status int, problem string) {
		t.Helper()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, a.URL+wire.PathTake, strings.NewReader(`{"worker":"w"}`))
		r.Header.Set("Content-Type", wire.TypeJSON)
		change(r)
		var p *refusal
		if err := do(worker, r, nil); !errors.As(err, &p) || p.Status != status || p.Type != problem {
			t.Errorf("%s: %v, want %d %s", name, err, status, problem)
		}
	}
	check("method", func(r *http.Request) { r.Method = http.MethodPut }, 405, wire.ProblemMethod)
	check("media type", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415, wire.ProblemMediaType)
	check("for another", func(r *http.Request) { r.Header.Set("Rota-Dispatch-For", "admin") }, 403, wire.ProblemForbidden)
	// What was refused changed nothing.
	for _, take := range []wire.Take{first, second} {
		var e wire.ExtendResponse
		if err := post(t.Context(), worker, a.URL, wire.PathExtend, wire.ExtendRequest{Token: take.Token}, &e); err != nil ||
			e.ExpiresInSeconds <= 0 {
			t.Errorf("%s: %+v, %v", take.Name, e, err)
		}
	}
}

// TestClientGone: keys whose worker went away before it got them go to another one at once, not when their takes expire.
func TestClientGone(t *testing.T) {
	t.Parallel()
	x, all := newTier(t, 2*time.Second, 1)
	a, worker := all[0], x.user("worker", true)
	x.create(0, 1)
	take := x.one(worker, a, "w")
	const rounds = 20
	expired := 0
	for i := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			gone <- post(ctx, worker, a.URL, wire.PathTake, wire.TakeRequest{Worker: "gone", WaitSeconds: 30}, nil)
		}()
		time.Sleep(time.Duration(i) * time.Millisecond)
		cancel()
		require.NoError(t, post(t.Context(), worker, a.URL, wire.PathRelease, wire.ReleaseRequest{Token: take.Token}, nil))
		<-gone
		if take = x.one(worker, a, "w"); take.Attempt > 1 {
			expired++
			require.NoError(t, post(t.Context(), worker, a.URL, wire.PathDone,
				wire.DoneRequest{Token: take.Token, AfterSeconds: 0.001}, nil))
			take = x.one(worker, a, "w")
		}
	}
	if expired > rounds/2 { // an answer that is on its way cannot be called back
		t.Errorf("%d of %d keys came back when their takes expired only", expired, rounds)
	}
}

// TestNobodyWaits: keys that come from another dispatcher when nobody waits for them any more are put back.
func TestNobodyWaits(t *testing.T) {
	t.Parallel()
	x, all := newTier(t, 2*time.Second, 2)
	a, b, worker := all[0], all[1], x.user("worker", true)
	err := await.Until(t.Context(), 50*time.Millisecond, 30*time.Second, func() string {
		if stats := x.stats(worker, a); stats.Dispatchers != 2 {
			return fmt.Sprint(stats)
		}
		return ""
	})
	require.NoError(t, err)
	require.NoError(t, post(t.Context(), worker, a.URL, wire.PathTake,
		wire.TakeRequest{Worker: "w", Max: 5, WaitSeconds: 0.2}, nil))
	x.create(0, 20) // the polls that a has sent to b still wait
	for i := range 20 {
		if take := x.one(worker, b, "w"); take.Attempt != 1 {
			t.Errorf("%s, the %dth, comes for the %dth time", take.Name, i, take.Attempt)
		} else if err := post(t.Context(), worker, a.URL, wire.PathDone, wire.DoneRequest{Token: take.Token}, nil); err != nil {
			t.Error(err)
		}
	}
}

// TestExpired: the key of a worker that says nothing goes to another one when its take is over.
func TestExpired(t *testing.T) {
	t.Parallel()
	x, all := newTier(t, 2*time.Second, 1)
	a, worker := all[0], x.user("worker", true)
	x.create(0, 1)
	begun := time.Now()
	dead := x.one(worker, a, "dead")
	if dead.ExpiresInSeconds > 30 || dead.ExpiresInSeconds <= 0 {
		t.Fatalf("a take of %+v", dead)
	}
	again := x.one(worker, a, "w")
	if d := time.Since(begun); again.Attempt != 2 || d < x.length {
		t.Errorf("attempt %d after %v", again.Attempt, d)
	}
	var p *refusal
	for _, path := range []string{wire.PathDone, wire.PathExtend, wire.PathRelease} {
		err := post(t.Context(), worker, a.URL, path, wire.DoneRequest{Token: dead.Token}, nil)
		if !errors.As(err, &p) || p.Type != wire.ProblemEnded {
			t.Errorf("%s: %v", path, err)
		}
	}
	require.NoError(t, post(t.Context(), worker, a.URL, wire.PathDone,
		wire.DoneRequest{Token: again.Token, Result: wire.ResultRetry}, nil))
	if third := x.one(worker, a, "w"); third.Attempt != 3 {
		t.Errorf("attempt %d", third.Attempt)
	}
	x.change("object-0", true)
	if last := x.one(worker, a, "w"); !last.Gone {
		t.Errorf("%+v, want that it is gone", last)
	}
}
