package etcd

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func options() Options {
	return Options{
		Rounds: 1, Length: time.Second, Leases: 20, Periods: []time.Duration{0, time.Second}, Rate: 10, Events: 10,
		Progress: io.Discard,
	}
}

func TestOptions(t *testing.T) {
	good := options()
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*Options){
		"rounds 0":   func(o *Options) { o.Rounds = 0 },
		"length 1ms": func(o *Options) { o.Length = time.Millisecond },
		"leases 0":   func(o *Options) { o.Leases = 0 },
		"no periods": func(o *Options) { o.Periods = nil },
		"period 1ms": func(o *Options) { o.Periods = []time.Duration{time.Millisecond} },
		"rate 0":     func(o *Options) { o.Rate = 0 },
		"events -1":  func(o *Options) { o.Events = -1 },
	} {
		o := options()
		spoil(&o)
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// A request that waits for its turn counts from when it was due, and those before the start do not count.
func TestSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s series
		ctx, cancel := context.WithTimeout(t.Context(), 9500*time.Millisecond)
		defer cancel()
		s.run(ctx, time.Now().Add(5*time.Second), time.Second, func(_ context.Context, n int) error {
			<-time.After(time.Duration(n) * 100 * time.Millisecond)
			return nil
		})
		if l := s.latency(); l.N != 5 || l.P50 != 700 || l.P99 != 900 || s.err != nil {
			t.Errorf("%+v, %v", l, s.err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var s series
		var calls atomic.Int64
		refused := errors.New("refused")
		s.run(t.Context(), time.Now(), time.Second, func(context.Context, int) error {
			calls.Add(1)
			return refused
		})
		if !errors.Is(s.err, refused) || calls.Load() > 2 {
			t.Errorf("%v after %d calls", s.err, calls.Load())
		}
	})
}

// The ratios are those of rounds, not those of medians.
func TestMarkdown(t *testing.T) {
	r := &Report{Leases: 1000, Rate: 30, Events: 30, Fsync: true, Seconds: 20}
	for i, p50 := range [][2]float64{{10, 5}, {20, 15}, {100, 25}} {
		r.Pairs = append(r.Pairs, Pair{
			Round: i + 1, PeriodSeconds: 2, One: Measured{Create: Latency{100, p50[0], 100}},
			Three: Measured{Create: Latency{100, p50[1], 50}},
		})
	}
	text := r.Markdown()
	want := "| 500 | create a ConfigMap | 20.0 ms | 15.0 ms | 0.50 (0.25 to 0.75) | 100.0 ms | 50.0 ms | 0.50 (0.50 to 0.50) |"
	if !strings.Contains(text, want) || strings.Contains(text, "Event |") {
		t.Errorf("no %q in\n%s", want, text)
	}
}
