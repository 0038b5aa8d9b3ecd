package etcd

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/judge"
)

// series are requests at a fixed rate, whether earlier ones have been answered or not, and their latencies.
type series struct {
	mu   sync.Mutex
	took []time.Duration
	err  error
}

// run calls do with the numbers from 0 until ctx ends or one fails, and then waits for all. It keeps how long after its
// time each ended whose time is not before from. A request that begins late has waited, too.
func (s *series) run(ctx context.Context, from time.Time, each time.Duration, do func(context.Context, int) error) {
	var work sync.WaitGroup
	defer work.Wait()
	// What has begun is to end, also after ctx.
	whole := context.WithoutCancel(ctx)
	due := time.Now()
	for n := 0; !s.failed() && await.Sleep(ctx, time.Until(due)) == nil; n++ {
		at := due
		work.Go(func() {
			err := do(whole, n)
			s.add(time.Since(at), err, !at.Before(from))
		})
		due = due.Add(each)
	}
}

func (s *series) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

func (s *series) add(took time.Duration, err error, counts bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.err = err
	} else if counts {
		s.took = append(s.took, took)
	}
}

func (s *series) latency() Latency {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.took)
	millis := func(q float64) float64 {
		return float64(judge.Quantile(s.took, q).Round(10*time.Microsecond)) / float64(time.Millisecond)
	}
	return Latency{N: len(s.took), P50: millis(0.5), P99: millis(0.99)}
}

// dialer has an address of its own, so that client-go does not take the transport of another client.
type dialer struct{ net.Dialer }
