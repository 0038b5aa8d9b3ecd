package footprint

import (
	"context"

	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/internal/await"
)

// join measures the cost of a member's join.
func (r *runner) join(ctx context.Context, c Case) (*Result, error) {
	run, crew := &Result{Base: &Window{}}, &crew{runner: r, c: c, name: caseName(c)}
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
	if _, err := crew.settle(ctx, r.objects(c)); err != nil {
		return nil, err
	}
	if run.Quiet, err = r.cluster.ServerHeap(ctx); err != nil {
		return nil, err
	}
	run.Quiet.Watches -= before
	if *run.Base, err = crew.during(ctx, nil, func() error { return await.Sleep(ctx, r.Window/2) }); err != nil {
		return nil, err
	}
	if _, err := crew.rest(ctx); err != nil { // resets the peaks
		return nil, err
	}
	during := make([]Replica, c.Members+1)
	run.Window, err = crew.during(ctx, during, func() error {
		if err := crew.start(ctx, 1, ""); err != nil {
			return err
		}
		_, err := crew.settle(ctx, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	if run.Replicas, err = crew.rest(ctx); err != nil {
		return nil, err
	}
	for i := range run.Replicas {
		run.Replicas[i].Window = during[i].Window
	}
	joiner := &run.Replicas[c.Members]
	joiner.Role, joiner.Start = roleJoiner, joiner.Window
	for _, n := range joiner.Cached {
		run.Moved += n
	}
	return run, nil
}
