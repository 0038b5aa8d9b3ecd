package workers_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/test/require"
)

// book notes who has which key.
type book struct {
	t      *testing.T
	mu     sync.Mutex
	has    map[string]bool
	worked map[string]int
}

func newBook(t *testing.T) *book {
	return &book{t: t, has: map[string]bool{}, worked: map[string]int{}}
}

func (b *book) begin(take wire.Take) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.has[take.Name] {
		b.t.Errorf("two workers have %s", take.Name)
	}
	b.has[take.Name] = true
}

func (b *book) end(take wire.Take) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.has, take.Name)
	b.worked[take.Name]++
}

// wait waits until all objects have been worked on.
func (b *book) wait(from, to int) {
	b.t.Helper()
	err := await.Until(b.t.Context(), 20*time.Millisecond, time.Minute, func() string {
		b.mu.Lock()
		defer b.mu.Unlock()
		for i := from; i < to; i++ {
			if name := "object-" + strconv.Itoa(i); b.worked[name] == 0 {
				return name + " has not been worked on"
			}
		}
		return ""
	})
	require.NoError(b.t, err)
}

// poll takes keys at one dispatcher, and extends and ends the takes there.
func (x *tier) poll(ctx context.Context, c *http.Client, b *book, name string, at *replica, n int) {
	for ctx.Err() == nil {
		var out wire.TakeResponse
		err := post(ctx, c, at.URL, wire.PathTake, wire.TakeRequest{Worker: name, Max: n, WaitSeconds: 2}, &out)
		if err != nil && ctx.Err() == nil {
			x.t.Errorf("%s: %v", name, err)
		}
		for _, take := range out.Takes {
			if take.ExpiresInSeconds <= 0 || take.Kind != "ConfigMap" || take.UID == "" || take.Attempt != 1 {
				x.t.Errorf("a take of %+v", take)
			}
			b.begin(take)
			var e wire.ExtendResponse
			extend := post(context.WithoutCancel(ctx), c, at.URL, wire.PathExtend, wire.ExtendRequest{Token: take.Token}, &e)
			if extend != nil || e.ExpiresInSeconds <= 1 || e.ExpiresInSeconds > 2.5 {
				x.t.Errorf("%s: extend: %+v, %v", name, e, extend)
			}
			b.end(take)
			done := post(context.WithoutCancel(ctx), c, at.URL, wire.PathDone, wire.DoneRequest{Token: take.Token}, nil)
			if done != nil {
				x.t.Errorf("%s: done: %v", name, done)
			}
		}
	}
}

// TestAnyDispatcher: a worker gets the keys of all dispatchers from one of them, by polls and by a stream, also when one
// has left.
func TestAnyDispatcher(t *testing.T) {
	t.Parallel()
	x, all := newTier(t, 2*time.Second, 3)
	a, b, c := all[0], all[1], all[2]
	worker := x.user("worker", true)
	book := newBook(t)
	var workers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer workers.Wait()
	defer stop()
	for i := range 3 {
		name := "worker-" + strconv.Itoa(i)
		workers.Go(func() { x.poll(ctx, worker, book, name, a, 1+4*i) })
	}
	x.create(0, 40)
	book.wait(0, 40)
	x.leave(b, c)
	x.create(40, 80)
	book.wait(40, 80)

	err := await.Until(t.Context(), 50*time.Millisecond, 30*time.Second, func() string {
		stats := x.stats(worker, c)
		if stats.Dispatchers != 2 || stats.Silent != 0 || len(stats.Kinds) != 1 || stats.Kinds[0].Pending != 0 {
			return fmt.Sprintf("%+v", stats)
		}
		return ""
	})
	require.NoError(t, err)
	stop()
	workers.Wait()
	ctx, stop = context.WithCancel(t.Context())
	defer stop()
	workers.Go(func() {
		x.stream(ctx, worker, c, 5, func(stream string, take wire.Take) bool {
			book.begin(take)
			book.end(take)
			done := post(ctx, worker, c.URL, wire.PathDone, wire.DoneRequest{Token: take.Token}, nil)
			credit := post(ctx, worker, a.URL, wire.PathCredit, wire.CreditRequest{Stream: stream, Credit: 1}, nil)
			if (done != nil || credit != nil) && ctx.Err() == nil {
				t.Error(done, credit)
			}
			return true
		})
	})
	x.create(80, 120)
	book.wait(80, 120)
}

// stats are the figures of all dispatchers.
func (x *tier) stats(c *http.Client, at *replica) (out wire.Stats) {
	r, err := http.NewRequestWithContext(x.t.Context(), http.MethodGet, at.URL+wire.PathStats, nil)
	if err == nil {
		err = do(c, r, &out)
	}
	if err != nil {
		x.t.Error(err)
	}
	return out
}
