package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/test/require"
)

// tier hands out the takes that a test adds, by polls. It notes how each ended.
type tier struct {
	mu    sync.Mutex
	takes []wire.Take
	more  chan struct{}
	ends  []string
	// extend answers extensions; nil: 30 s.
	extend func() (int, any)
	asked  []int // Max of the polls
}

func newTier() *tier { return &tier{more: make(chan struct{}, 100)} }

func (s *tier) add(takes ...wire.Take) {
	s.mu.Lock()
	s.takes = append(s.takes, takes...)
	s.mu.Unlock()
	s.more <- struct{}{}
}

func (s *tier) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, fmt.Sprintf(format, args...))
}

func (s *tier) answer(path string, body []byte) (int, http.Header, any) {
	switch path {
	case wire.PathTake:
		var in wire.TakeRequest
		_ = json.Unmarshal(body, &in)
		s.mu.Lock()
		s.asked = append(s.asked, in.Max)
		s.mu.Unlock()
		for over := time.After(30 * time.Second); ; {
			s.mu.Lock()
			none := len(s.takes) == 0
			s.mu.Unlock()
			if !none {
				break
			}
			select {
			case <-s.more:
				continue
			case <-over:
			}
			break
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		n := min(in.Max, len(s.takes))
		out := s.takes[:n:n]
		s.takes = s.takes[n:]
		return 200, nil, wire.TakeResponse{Takes: out}
	case wire.PathDone:
		var in wire.DoneRequest
		_ = json.Unmarshal(body, &in)
		s.note("%s %s %v", in.Token, in.Result, in.AfterSeconds)
	case wire.PathRelease:
		var in wire.ReleaseRequest
		_ = json.Unmarshal(body, &in)
		s.note("%s release", in.Token)
	case wire.PathExtend:
		if s.extend != nil {
			status, out := s.extend()
			return status, nil, out
		}
		return 200, nil, wire.ExtendResponse{ExpiresInSeconds: 30}
	}
	return 204, nil, nil
}

func takeFor(name, token string) wire.Take {
	return wire.Take{Token: token, Kind: "K", Name: name, Attempt: 1, ExpiresInSeconds: 30}
}

// works runs a worker until the test calls stop, which waits for it.
func works(t *testing.T, s *tier, w Worker, handle Handler) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w.Client = newTestClient(t, s.answer)
	over := make(chan error, 1)
	go func() { over <- Run(ctx, w, handle) }()
	return func() error {
		cancel()
		return <-over
	}
}

func (s *tier) ended() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.ends...)
}

func (s *tier) want(t *testing.T, ends ...string) {
	t.Helper()
	require.Equal(t, "how takes ended", ends, s.ended())
}

func TestRunTellsHowWorkEnded(t *testing.T) {
	returns := func(result Result, err error) Handler {
		return func(context.Context, *Take) (Result, error) { return result, err }
	}
	failure := errors.New("no")
	for _, c := range []struct {
		name   string
		handle Handler
		want   string
	}{
		{"done", returns(Result{}, nil), "t ok 0"},
		{"after", returns(Result{After: 3 * time.Second}, nil), "t ok 3"},
		{"retry", returns(Result{Retry: true}, nil), "t retry 0"},
		{"error", returns(Result{}, failure), "t retry 0"},
		{"error, not before", returns(Result{After: time.Second}, failure), "t retry 1"},
		{"in a century", returns(Result{After: 876000 * time.Hour}, nil), "t ok 3.1536e+07"},
		{"negative", returns(Result{After: -1}, nil), "t ok 0"},
		{"panic", func(context.Context, *Take) (Result, error) { panic("no") }, "t retry 0"},
		{"panic with nil", func(context.Context, *Take) (Result, error) { panic(nil) }, "t retry 0"},
		{"goexit", func(context.Context, *Take) (Result, error) { runtime.Goexit(); panic("not here") }, "t retry 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTier()
				stop := works(t, s, Worker{}, c.handle)
				s.add(takeFor("a", "t"))
				synctest.Wait()
				s.want(t, c.want)
				require.NoError(t, stop())
			})
		})
	}
}

func TestRunExtendsUntilTheTakeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, extended := newTier(), 0
		s.extend = func() (int, any) {
			if extended++; extended > 4 {
				return 410, problemFor(wire.ProblemEnded)
			}
			return 200, wire.ExtendResponse{ExpiresInSeconds: 30}
		}
		var cause error
		var lasted time.Duration
		stop := works(t, s, Worker{}, func(ctx context.Context, _ *Take) (Result, error) {
			begun := time.Now()
			<-ctx.Done()
			cause, lasted = context.Cause(ctx), time.Since(begun)
			return Result{}, nil
		})
		s.add(takeFor("a", "t"))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !errors.Is(cause, ErrEnded) || extended != 5 || lasted != 50*time.Second {
			t.Errorf("after %v and %d extensions, each after 10 s: %v", lasted, extended, cause)
		}
		s.want(t) // what has ended is not ended again
		_ = stop()
	})
}

func TestRunStopsWorkAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTier()
		s.extend = func() (int, any) { return 0, nil } // no connection
		var cause error
		var lasted time.Duration
		stop := works(t, s, Worker{}, func(ctx context.Context, _ *Take) (Result, error) {
			begun := time.Now()
			<-ctx.Done()
			cause, lasted = context.Cause(ctx), time.Since(begun)
			return Result{}, context.Cause(ctx)
		})
		s.add(takeFor("a", "t"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if !errors.Is(cause, ErrEnded) || lasted != 30*time.Second {
			t.Errorf("the take of 30 s ended after %v: %v", lasted, cause)
		}
		s.want(t)
		_ = stop()
	})
}

// A take whose time is over when its handler would begin is not worked on: somebody else may have the key. The answer was
// late here; a process that was stopped after the answer is the same.
func TestRunBeginsNothingTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTier()
		var mu sync.Mutex
		var begun []string
		stop := works(t, s, Worker{}, func(_ context.Context, k *Take) (Result, error) {
			mu.Lock()
			defer mu.Unlock()
			begun = append(begun, k.token)
			return Result{}, nil
		})
		time.Sleep(20 * time.Second) // the poll waits
		late, next := takeFor("a", "late"), takeFor("a", "next")
		late.ExpiresInSeconds = 10
		s.add(late)
		s.add(next)
		time.Sleep(time.Second)
		s.want(t, "next ok 0")
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, "handlers", []string{"next"}, begun)
		require.NoError(t, stop())
	})
}

// A handler that does not hear that its take has ended keeps the next take of the key waiting.
func TestRunNeverHasAKeyTwice(t *testing.T) {
	for _, c := range []struct {
		name  string
		stuck time.Duration
		want  []string
	}{
		{"the first returns", 5 * time.Second, []string{"t2 ok 0"}},
		{"the first does not return in time", 20 * time.Second, []string{"t2 retry 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTier()
				busy, most := 0, 0
				var mu sync.Mutex
				stop := works(t, s, Worker{Concurrency: 3}, func(ctx context.Context, k *Take) (Result, error) {
					mu.Lock()
					busy++
					most = max(most, busy)
					mu.Unlock()
					if k.token == "t1" {
						<-ctx.Done()
						time.Sleep(c.stuck)
					}
					mu.Lock()
					busy--
					mu.Unlock()
					return Result{}, nil
				})
				s.add(takeFor("a", "t1"))
				time.Sleep(time.Second)
				s.add(takeFor("a", "t2"))
				time.Sleep(time.Minute)
				mu.Lock()
				if most != 1 {
					t.Errorf("%d handlers at the same time", most)
				}
				mu.Unlock()
				s.want(t, c.want...)
				_ = stop()
			})
		})
	}
}

func TestRunStops(t *testing.T) {
	for _, c := range []struct {
		name string
		// works is how long the handler takes, and obeys whether it returns when its context ends.
		works   time.Duration
		obeys   bool
		want    []string
		lasts   time.Duration
		problem string
	}{
		{"in time", 8 * time.Second, true, []string{"t ok 0"}, 8 * time.Second, ""},
		{"cut short", time.Minute, true, []string{"t release"}, 10 * time.Second, ""},
		{"soon after", 12 * time.Second, false, []string{"t ok 0"}, 12 * time.Second, ""},
		{"stuck", time.Minute, false, nil, 16 * time.Second, "have not returned: K a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTier()
				stop := works(t, s, Worker{Grace: 10 * time.Second}, func(ctx context.Context, _ *Take) (Result, error) {
					if !c.obeys {
						time.Sleep(c.works)
						return Result{}, nil
					}
					select {
					case <-time.After(c.works):
						return Result{}, nil
					case <-ctx.Done():
						return Result{}, context.Cause(ctx)
					}
				})
				s.add(takeFor("a", "t"))
				synctest.Wait()
				begun := time.Now()
				err := stop()
				if took := time.Since(begun); took != c.lasts {
					t.Errorf("stopped within %v, want %v", took, c.lasts)
				}
				if (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
					t.Errorf("error %v, want %q", err, c.problem)
				}
				s.want(t, c.want...)
				time.Sleep(2 * time.Minute) // a stuck one has to return, or the bubble does not end
			})
		})
	}
}

func TestRunAsksForWhatItCanWorkOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTier()
		stop := works(t, s, Worker{Concurrency: 3}, func(context.Context, *Take) (Result, error) {
			time.Sleep(time.Minute)
			return Result{}, nil
		})
		s.add(takeFor("a", "1"), takeFor("b", "2"))
		synctest.Wait()
		s.add(takeFor("c", "3"), takeFor("d", "4"))
		time.Sleep(30 * time.Second)
		s.mu.Lock()
		require.Equal(t, "keys asked for", []int{3, 1}, s.asked)
		s.mu.Unlock()
		time.Sleep(5 * time.Minute)
		if got := len(s.ended()); got != 4 {
			t.Errorf("%d keys done, want 4", got)
		}
		require.NoError(t, stop())
	})
}

func TestRunRefusesWorkers(t *testing.T) {
	c := newTestClient(t, nil)
	handle := func(context.Context, *Take) (Result, error) { return Result{}, nil }
	for name, w := range map[string]Worker{
		"no Client": {}, "Concurrency": {Client: c, Concurrency: -1}, "from 1 to": {Client: c, Concurrency: 1001},
		"Length": {Client: c, Length: -1}, "Name has": {Client: c, Name: strings.Repeat("x", 254)},
	} {
		if err := Run(t.Context(), w, handle); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one with %q", err, name)
		}
	}
	if err := Run(t.Context(), Worker{Client: c}, nil); err == nil {
		t.Error("no error without a handler")
	}
}
