package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/rota-dev/rota/internal/await"
)

// Options say what to measure.
type Options struct {
	// Sizes are numbers of objects, rising.
	Sizes []int
	// Rate is how many objects change each second while latencies are measured, and Window for how long.
	Rate   float64
	Window time.Duration
	// Progress gets a line for each step.
	Progress io.Writer
}

// Report has the results.
type Report struct {
	Memory  []Memory
	Latency []Latency
	Costs   Costs
}

// Memory is that of a dispatcher with a number of objects, in bytes.
type Memory struct {
	Objects int
	// Listing is the largest heap while it lists them, garbage included. Pending is the live heap when all keys wait,
	// and Rest when none does.
	Listing, Pending, Rest uint64
	// Takes a second, with one worker process, and the dispatcher's processor time for each take and done.
	Rate float64
	Each time.Duration
}

// Latency is the time from before a change is written.
type Latency struct {
	// How says where the workers are, and Who hears of the changes.
	How, Who string
	Count    int
	P50, P99 time.Duration
}

// Costs are processor time of the API server.
type Costs struct {
	// Get is for a read of one object, and Cached for one that may be as old as a resourceVersion. Event is for sending a
	// change to one more watcher of whole objects, and Metadata to one of metadata.
	Get, Cached, Event, Metadata time.Duration
}

// Run measures.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	dir, err := os.MkdirTemp("", "rota-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c, err := open(ctx, o, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	r = &Report{}
	for i, n := range o.Sizes {
		if err := c.grow(ctx, n); err != nil {
			return nil, err
		}
		if i == 0 {
			if r.Costs, err = c.costs(ctx); err != nil {
				return nil, err
			}
			c.tell("%+v", r.Costs)
		}
		m, err := c.memory(ctx)
		if err != nil {
			return nil, err
		}
		c.tell("%+v", m)
		r.Memory = append(r.Memory, m)
		if i == min(1, len(o.Sizes)-1) {
			if r.Latency, err = c.latency(ctx); err != nil {
				return nil, err
			}
			c.tell("%+v", r.Latency)
		}
	}
	return r, nil
}

func (c *cluster) tell(format string, args ...any) {
	_, _ = fmt.Fprintf(c.o.Progress, format+"\n", args...)
}

// end tells a dispatcher to end, and waits.
func (s *server) end() error {
	defer s.Kill()
	if err := s.End(syscall.SIGTERM); err != nil {
		return err
	}
	if err := await.Until(context.Background(), 50*time.Millisecond, time.Minute, s.Lingers); err != nil {
		return err
	}
	return s.Failure()
}

// memory measures one dispatcher with the objects that there are.
func (c *cluster) memory(ctx context.Context) (m Memory, err error) {
	s, err := c.start(ctx)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	if err := c.pending(ctx, s, c.objects); err != nil {
		return m, err
	}
	f, err := s.figures(ctx)
	if err != nil {
		return m, err
	}
	m = Memory{Objects: c.objects, Listing: f.Peak, Pending: f.Live}
	begun := time.Now()
	n, err := c.drain(ctx, s, 8, 10)
	took := time.Since(begun) - 2*time.Second // the last polls wait
	if err != nil {
		return m, err
	}
	if n != c.objects {
		return m, fmt.Errorf("%d keys of %d objects were handed out", n, c.objects)
	}
	used, err := s.figures(ctx)
	if err != nil {
		return m, err
	}
	m.Rate, m.Each = float64(n)/took.Seconds(), (used.CPU-f.CPU)/time.Duration(n)
	if err := await.Sleep(ctx, 2*time.Second); err != nil {
		return m, err
	}
	rest, err := s.figures(ctx)
	m.Rest = rest.Live
	return m, err
}
