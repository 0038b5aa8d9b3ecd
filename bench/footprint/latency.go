package footprint

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/bench/meter"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/journal"
	"github.com/rota-dev/rota/test/stage"
)

// latency creates Websites alternately for an operator with leader election and for one with Rota. Both run at the same
// time, so other load on the machine affects both.
func (r *runner) latency(ctx context.Context, c Case) (*Result, error) {
	sides := []struct {
		namespace string
		crew      *crew
	}{
		{stockNamespace, &crew{runner: r, c: Case{c.What, Stock, 1}, name: caseName(c) + "-stock"}},
		{rotaNamespace, &crew{runner: r, c: c, name: caseName(c)}},
	}
	for _, s := range sides {
		defer s.crew.end()
		if err := s.crew.start(ctx, s.crew.c.Members, s.namespace); err != nil {
			return nil, err
		}
	}
	for _, s := range sides {
		if _, err := s.crew.settle(ctx, 0); err != nil {
			return nil, err
		}
	}
	n := r.Creates * len(sides)
	sent, took := make([]time.Duration, n), make([]time.Duration, n)
	step := time.Duration(float64(time.Second) / r.CreateRate / float64(len(sides)))
	begun := journal.Now()
	err := stage.Parallel(ctx, 0, n, func(i int) error {
		if err := await.Sleep(ctx, begun+time.Duration(i)*step-journal.Now()); err != nil {
			return err
		}
		obj := cluster.Site(sides[i%len(sides)].namespace, createdName(i))
		sent[i] = journal.Now()
		err := r.cluster.Client.Create(ctx, obj)
		took[i] = journal.Now() - sent[i]
		return err
	})
	if err != nil {
		return nil, err
	}
	run := &Result{}
	for k, s := range sides {
		settled, err := s.crew.settle(ctx, r.Creates)
		if err != nil {
			return nil, err
		}
		writes := 0
		for _, now := range settled {
			writes += requests(now.Requests, meter.Writing...)
		}
		first := map[string]time.Duration{}
		for _, p := range s.crew.replicas {
			seen, err := p.seen(ctx)
			if err != nil {
				return nil, err
			}
			for name, at := range seen {
				if was, ok := first[name]; !ok || at < was {
					first[name] = at
				}
			}
		}
		var waits, creates []time.Duration
		for i := k; i < n; i += len(sides) {
			at, ok := first[createdName(i)]
			if !ok {
				return nil, fmt.Errorf("%s: %s was never reconciled", s.crew.name, createdName(i))
			}
			waits, creates = append(waits, at-sent[i]), append(creates, took[i])
		}
		run.Delays = append(run.Delays, Delay{
			Form: s.crew.c.Form, Creates: len(waits), P50: percentile(waits, 50), P99: percentile(waits, 99),
			Create: percentile(creates, 50), Writes: float64(writes) / float64(len(waits)),
		})
		s.crew.end()
		if err := r.cluster.Empty(ctx, s.namespace, slices.Collect(maps.Values(cluster.Sharded()))...); err != nil {
			return nil, err
		}
	}
	run.Objects, run.Sizes, err = r.cluster.Count(ctx, cluster.Sharded())
	return run, err
}

func createdName(i int) string { return fmt.Sprintf("%s%05d", createdPrefix, i) }

// percentile returns the value, in milliseconds, that p percent of the times do not exceed.
func percentile(values []time.Duration, p int) float64 {
	values = slices.Sorted(slices.Values(values))
	return float64(values[(len(values)*p+99)/100-1].Microseconds()) / 1000
}
