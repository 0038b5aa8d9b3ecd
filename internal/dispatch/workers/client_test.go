package workers_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-dev/rota/dispatch/client"
	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// clientOf returns a Go client of dispatchers, with the token of a user.
func (x *tier) clientOf(user string, may bool, at ...*replica) *client.Client {
	x.t.Helper()
	var o client.Options
	for _, m := range at {
		o.URLs = append(o.URLs, m.URL)
	}
	o.HTTP = x.user(user, may)
	c, err := client.New(o)
	if err != nil {
		x.t.Fatal(err)
	}
	return c
}

// TestGoClient has two workers, one with polls and one with a stream, while the dispatcher of each ends in turn. Every
// fourth key takes longer than its take lasts, so that it has to be extended, wherever its dispatcher is.
func TestGoClient(t *testing.T) {
	t.Parallel()
	x := newTier(t)
	peer := x.user("dispatcher", false)
	one, two := x.start(peer), x.start(peer)
	b := newBook(t)
	var extended atomic.Int32
	var ended []chan error
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for i, w := range []client.Worker{
		{Name: "polls", Client: x.clientOf("polls", true, one, two)},
		{Name: "streams", Client: x.clientOf("streams", true, two, one), Stream: true},
	} {
		w.Kinds, w.Concurrency = []string{"ConfigMap"}, 4
		ended = append(ended, make(chan error, 1))
		go func() {
			ended[i] <- client.Run(ctx, w, func(ctx context.Context, k *client.Take) (client.Result, error) {
				take := wire.Take{Name: k.Name}
				b.begin(take)
				begun := time.Now()
				if n, _ := strconv.Atoi(strings.TrimPrefix(k.Name, "object-")); n%4 == 0 {
					select {
					case <-time.After(x.length + x.length/2):
						extended.Add(1)
					case <-ctx.Done():
						t.Logf("%s: the take ended after %v: %v", k, time.Since(begun), context.Cause(ctx))
						b.mu.Lock()
						delete(b.has, k.Name)
						b.mu.Unlock()
						return client.Result{}, context.Cause(ctx)
					}
				}
				b.end(take)
				return client.Result{}, nil
			})
		}()
	}
	x.create(0, 20)
	b.wait(0, 20)
	if n := extended.Load(); n < 5 {
		t.Errorf("%d of 5 keys took longer than a take lasts", n)
	}
	x.start(peer)
	one.stop(t)
	x.create(20, 40)
	b.wait(20, 40)
	stop()
	for _, each := range ended {
		if err := <-each; err != nil {
			t.Error(err)
		}
	}
	stats, err := x.clientOf("reader", false, two).Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stats.Kinds[0].Taken != 0 {
		t.Errorf("workers have ended, and %d keys are taken", stats.Kinds[0].Taken)
	}
}
