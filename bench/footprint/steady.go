package footprint

import (
	"context"
	"strings"
	"time"

	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/internal/await"
)

// steady measures replicas at rest and then under a steady load. Idle replicas have no load.
func (r *runner) steady(ctx context.Context, c Case) (*Result, error) {
	run, crew := &Result{}, &crew{runner: r, c: c, name: caseName(c)}
	defer crew.end()
	var err error
	if run.Objects, run.Sizes, err = r.cluster.Count(ctx, cluster.Sharded()); err != nil {
		return nil, err
	}
	before, err := r.cluster.Watches(ctx)
	if err != nil {
		return nil, err
	}
	if err := crew.start(ctx, c.Members, ""); err != nil {
		return nil, err
	}
	started, err := crew.settle(ctx, r.objects(c))
	if err != nil {
		return nil, err
	}
	if run.Replicas, err = crew.rest(ctx); err != nil {
		return nil, err
	}
	for i := range started {
		run.Replicas[i].Start = started[i].since(reading{})
	}
	if run.Quiet, err = r.cluster.ServerHeap(ctx); err != nil {
		return nil, err
	}
	run.Quiet.Watches -= before
	run.Window, err = crew.during(ctx, run.Replicas, func() error {
		if c.What == Idle {
			return await.Sleep(ctx, r.Window/2)
		}
		if err := r.cluster.Churn(ctx, r.Rate, r.Window); err != nil {
			return err
		}
		return crew.quieten(ctx)
	})
	return run, err
}

// during runs a function, and records what replicas and servers did meanwhile.
func (c *crew) during(ctx context.Context, replicas []Replica, do func() error) (w Window, err error) {
	then, err := c.readings(ctx)
	if err != nil {
		return w, err
	}
	api, etcd, err := c.cluster.ServerCPU(ctx)
	if err != nil {
		return w, err
	}
	begun := time.Now()
	if err := do(); err != nil {
		return w, err
	}
	w.Seconds = time.Since(begun).Seconds()
	now, err := c.readings(ctx)
	if err != nil {
		return w, err
	}
	for i := range replicas {
		from := reading{}
		if i < len(then) { // later ones were started meanwhile
			from = then[i]
		}
		replicas[i].Window = now[i].since(from)
		replicas[i].Window.Seconds = w.Seconds
	}
	if w.ServerSeconds, w.EtcdSeconds, err = c.cluster.ServerCPU(ctx); err != nil {
		return w, err
	}
	w.ServerSeconds -= api
	w.EtcdSeconds -= etcd
	return w, nil
}

// caseName is the case's name as a DNS label.
func caseName(c Case) string { return strings.ReplaceAll(c.String(), "/", "-") }
