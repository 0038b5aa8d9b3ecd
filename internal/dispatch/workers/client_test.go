package workers_test

import (
	"context"
	"errors"
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

// TestGoClientProblems: what the dispatcher refuses is what the client says.
func TestGoClientProblems(t *testing.T) {
	t.Parallel()
	x := newTier(t)
	m := x.start(x.user("dispatcher", false))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	may, mayNot := x.clientOf("worker", true, m), x.clientOf("nobody", false, m)
	x.create(0, 1)
	ask := wire.TakeRequest{Worker: "w", WaitSeconds: 30, LengthSeconds: 1}
	takes, err := may.Take(ctx, ask)
	if err != nil || len(takes) != 1 {
		t.Fatal(takes, err)
	}
	if left := takes[0].Remaining(); left <= 0 || left > time.Second {
		t.Errorf("%v remain of a take of 1 s", left)
	}
	if err := may.Extend(ctx, takes[0], 2*time.Second); err != nil || takes[0].Remaining() < time.Second {
		t.Errorf("%v remain of a take that was extended to 2 s: %v", takes[0].Remaining(), err)
	}
	if err := mayNot.Release(ctx, takes[0]); !errors.Is(err, client.ErrForbidden) {
		t.Errorf("another user's take: %v, want ErrForbidden", err)
	}
	if err := may.Done(ctx, takes[0], client.Result{}); err != nil {
		t.Error(err)
	}
	if err := may.Done(ctx, takes[0], client.Result{}); err != nil {
		t.Errorf("the same done once more, whose first answer may have been lost: %v", err)
	}
	if err := may.Extend(ctx, takes[0], time.Second); !errors.Is(err, client.ErrEnded) {
		t.Errorf("extended after it was done: %v, want ErrEnded", err)
	}
	for _, c := range []struct {
		name   string
		client *client.Client
		ask    wire.TakeRequest
		want   error
	}{
		{"not permitted", mayNot, ask, client.ErrForbidden},
		{"a kind that is not there", may, wire.TakeRequest{Worker: "w", Kinds: []string{"Pod"}}, client.ErrUnknownKind},
		{"no worker", may, wire.TakeRequest{}, client.ErrInvalid},
	} {
		if _, err := c.client.Take(ctx, c.ask); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	s, err := may.Stream(ctx, wire.StreamRequest{Worker: "w", Credit: 1})
	if err != nil {
		t.Fatal(err)
	}
	x.create(1, 3)
	for i := range 2 {
		k, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := may.Done(ctx, k, client.Result{}); err != nil {
			t.Error(err)
		}
		if i == 0 {
			if err := s.Credit(ctx, 1); err != nil {
				t.Error(err)
			}
		}
	}
	s.Close()
	if _, err := s.Next(ctx); err == nil {
		t.Error("a key from a stream that is closed")
	}
}
