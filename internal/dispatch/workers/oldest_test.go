package workers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// alone has a dispatcher answer for itself only, as others ask it.
func (x *tier) alone(c *http.Client, at *replica, method, path string, in, out any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(x.t.Context(), method, at.URL+path, strings.NewReader(string(text)))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", wire.TypeJSON)
	r.Header.Set("Rota-Dispatch-For", url.QueryEscape("system:serviceaccount:"+x.namespace+":worker"))
	return do(c, r, out)
}

// own are the figures of one dispatcher.
func (x *tier) own(c *http.Client, at *replica) wire.KindStats {
	x.t.Helper()
	var stats wire.Stats
	if err := x.alone(c, at, http.MethodGet, wire.PathStats, nil, &stats); err != nil {
		x.t.Fatal(err)
	}
	return stats.Kinds[0]
}

// TestOldestElsewhere: a worker that always finds keys at its dispatcher gets those of another one that have waited
// longer, by polls and by a stream.
func TestOldestElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("keys have to wait for some seconds")
	}
	t.Parallel()
	x := newTier(t)
	x.length = 10 * time.Second
	peer, worker := x.user("dispatcher", false), x.user("worker", true)
	a, b := x.start(peer), x.start(peer)
	until := func(what func() string) {
		t.Helper()
		if err := await.Until(t.Context(), 50*time.Millisecond, time.Minute, what); err != nil {
			t.Fatal(err)
		}
	}
	// waiting waits until so many keys are ready at b.
	waiting := func(atB int) {
		t.Helper()
		until(func() string {
			if n := x.own(peer, b).Ready; n < atB {
				return fmt.Sprintf("%d keys are ready", n)
			}
			return ""
		})
	}
	// drain takes all keys of a dispatcher.
	drain := func(at *replica) {
		t.Helper()
		var out wire.TakeResponse
		err := x.alone(peer, at, http.MethodPost, wire.PathTake, wire.TakeRequest{Worker: "w", Max: wire.MaxKeys}, &out)
		for _, take := range out.Takes {
			if err == nil {
				err = post(t.Context(), worker, at.URL, wire.PathDone, wire.DoneRequest{Token: take.Token}, nil)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	x.create(0, 40)
	waiting(10) // it has slots
	drain(b)
	const old = 100
	x.create(40, old)
	waiting(20)
	until(func() string {
		if oldest := x.own(peer, b).OldestChangedSeconds; oldest < 4 {
			return fmt.Sprintf("the oldest key has waited for %v s", oldest)
		}
		return ""
	})
	drain(a)
	x.create(old, 2*old)
	until(func() string {
		if n := x.own(peer, a).Ready; n < 20 {
			return fmt.Sprintf("%d keys are ready", n)
		}
		return ""
	})

	// ended ends a take, and says whether it is an old one that came although there were others.
	ended := func(take wire.Take) bool {
		t.Helper()
		if err := post(t.Context(), worker, a.URL, wire.PathDone, wire.DoneRequest{Token: take.Token}, nil); err != nil {
			t.Fatal(err)
		}
		left := x.own(peer, a).Ready
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
	x.stream(ctx, worker, a, func(stream string, take wire.Take) (goOn bool) {
		if ended(take) {
			return false
		}
		time.Sleep(300 * time.Millisecond)
		if err := post(ctx, worker, a.URL, wire.PathCredit, wire.CreditRequest{Stream: stream, Credit: 1}, nil); err != nil {
			t.Error(err)
		}
		return true
	})
}

// stream has credit for one key, and calls work with each that comes until that returns false.
func (x *tier) stream(ctx context.Context, c *http.Client, at *replica, work func(string, wire.Take) bool) {
	x.t.Helper()
	text, _ := json.Marshal(wire.StreamRequest{Worker: "w", Credit: 1})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at.URL+wire.PathStream, strings.NewReader(string(text)))
	if err != nil {
		x.t.Fatal(err)
	}
	r.Header.Set("Content-Type", wire.TypeJSON)
	answer, err := c.Do(r)
	if err != nil {
		x.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	name := ""
	for lines := json.NewDecoder(answer.Body); ; {
		var e wire.StreamEvent
		if err := lines.Decode(&e); err != nil {
			x.t.Fatalf("no old key came by a stream: %v", err)
		}
		if e.Stream != "" {
			name = e.Stream
		}
		if e.Take != nil && !work(name, *e.Take) {
			return
		}
	}
}
