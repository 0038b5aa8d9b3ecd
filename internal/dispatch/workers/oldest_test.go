package workers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/test/require"
)

// alone has a dispatcher answer for itself only, as others ask it for the user worker.
func (x *tier) alone(at *replica, method, path string, in, out any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(x.t.Context(), method, at.URL+path, strings.NewReader(string(text)))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", wire.TypeJSON)
	r.Header.Set("Rota-Dispatch-For", "worker")
	return do(x.peer, r, out)
}

// own are the figures of one dispatcher.
func (x *tier) own(at *replica) wire.KindStats {
	x.t.Helper()
	var stats wire.Stats
	require.NoError(x.t, x.alone(at, http.MethodGet, wire.PathStats, nil, &stats))
	return stats.Kinds[0]
}

// TestOldestElsewhere: a worker that always finds keys at its dispatcher gets those of another one that have waited
// longer, by polls and by a stream.
func TestOldestElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("keys have to wait for some seconds")
	}
	t.Parallel()
	x, all := newTier(t, 10*time.Second, 2)
	a, b, worker := all[0], all[1], x.user("worker", true)
	until := func(what func() string) {
		t.Helper()
		require.NoError(t, await.Until(t.Context(), 50*time.Millisecond, time.Minute, what))
	}
	const old = 60
	x.create(0, old)
	until(func() string {
		if oldest := x.own(b).OldestChangedSeconds; oldest < 4 {
			return fmt.Sprintf("the oldest key has waited for %v s", oldest)
		}
		return ""
	})
	var out wire.TakeResponse
	err := x.alone(a, http.MethodPost, wire.PathTake, wire.TakeRequest{Worker: "w", Max: wire.MaxKeys}, &out)
	for _, take := range out.Takes {
		if err == nil {
			err = post(t.Context(), worker, a.URL, wire.PathDone, wire.DoneRequest{Token: take.Token}, nil)
		}
	}
	require.NoError(t, err)
	x.create(old, 2*old)

	// ended ends a take, and says whether it is an old one that came although there were others.
	ended := func(take wire.Take) bool {
		t.Helper()
		require.NoError(t, post(t.Context(), worker, a.URL, wire.PathDone, wire.DoneRequest{Token: take.Token}, nil))
		left := x.own(a).Ready
		if left == 0 {
			t.Fatal("no key is left at the dispatcher that is asked, and none of the older ones came")
		}
		n, err := strconv.Atoi(strings.TrimPrefix(take.Name, "object-"))
		return err == nil && n < old
	}
	until(func() string {
		var out wire.TakeResponse
		if err := post(t.Context(), worker, a.URL, wire.PathTake, wire.TakeRequest{Worker: "w"}, &out); err != nil {
			return err.Error()
		}
		for _, take := range out.Takes {
			if ended(take) {
				return ""
			}
		}
		time.Sleep(300 * time.Millisecond) // until the figures are known
		return "no old key came by a poll"
	})

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	x.stream(ctx, worker, a, 1, func(stream string, take wire.Take) (goOn bool) {
		if ended(take) {
			return false
		}
		time.Sleep(300 * time.Millisecond)
		require.NoError(t, post(ctx, worker, a.URL, wire.PathCredit, wire.CreditRequest{Stream: stream, Credit: 1}, nil))
		return true
	})
}
