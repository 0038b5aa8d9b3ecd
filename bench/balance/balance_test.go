package balance

import (
	"errors"
	"testing"
	"time"

	"github.com/rota-dev/rota/apiservers/front/fronttest"
	"github.com/rota-dev/rota/apiservers/front/haproxy"
)

// TestGoawayMovesClients: with --goaway-chance, requests of clients that have connections go to an API server that comes
// later, and so do watches when they end. All without a request that fails.
func TestGoawayMovesClients(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs real servers: not under -short")
	}
	fronttest.HAProxy(t)
	r, err := Run(t.Context(), Options{
		Before: 1, After: 2, Clients: 20, Every: 100 * time.Millisecond, Goaway: 0.02, Remedy: Nothing,
		WatchLifetime: 2 * time.Second, Settle: time.Second, For: 2 * time.Minute, Window: time.Second,
		Enough: func(r Result) bool {
			requests, watches := r.Moved()
			return requests > 0.25 && watches > 0.25
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := r.BeforeWatches["server-2"]; n != 0 {
		t.Errorf("%d watches were at a server that did not get connections", n)
	}
	if requests, watches := r.Moved(); requests <= 0.25 || watches <= 0.25 {
		t.Errorf("%.2f of the requests and %.2f of the watches have moved: %v, %v", requests, watches, r.Requests, r.Watches)
	}
	if r.Failed > 0 {
		t.Errorf("%d of %d requests failed: %v", r.Failed, r.Sent, r.LastError)
	}
}

// TestConnectionsStay: without a remedy nothing moves, and cutting connections moves all at once.
func TestConnectionsStay(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs real servers: not under -short")
	}
	fronttest.HAProxy(t)
	o := Options{
		Before: 1, After: 2, Clients: 20, Every: 100 * time.Millisecond, Remedy: Cut, WatchLifetime: 2 * time.Second,
		Settle: time.Second, For: 2 * time.Minute, Window: time.Second,
	}
	first := true
	o.Enough = func(r Result) bool {
		requests, watches := r.Moved()
		if first { // the connections are cut after two seconds
			if first = false; requests > 0 || watches > 0 {
				t.Errorf("without a remedy requests %v and watches %v have moved", r.Requests, r.Watches)
			}
		}
		return requests > 0.25 && watches > 0.25
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if requests, watches := r.Moved(); requests <= 0.25 || watches <= 0.25 {
		t.Errorf("%.2f of the requests and %.2f of the watches have moved: %v, %v", requests, watches, r.Requests, r.Watches)
	}
}

func TestRefused(t *testing.T) {
	for _, o := range []Options{{}, {Before: 2, After: 2, Clients: 1, Every: 1}, {Before: 1, After: 2}} {
		if _, err := Run(t.Context(), o); err == nil || errors.Is(err, haproxy.ErrMissing) {
			t.Errorf("%+v: %v, want a refusal", o, err)
		}
	}
}
