package etcdbench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/controlplane"
)

// kept is where a control plane keeps Leases and Events, by the number of its etcds.
var kept = []struct {
	etcds int
	split []string
}{
	{1, nil},
	{3, []string{"coordination.k8s.io/leases", "/events"}},
}

// settle is how long a load runs before it is measured.
const settle = 3 * time.Second

// Run measures all cases on a control plane with one etcd and on one with three, in turns. Both run all the time: the
// one that is not measured has nothing to do.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	var planes []*plane
	defer func() {
		for _, p := range planes {
			err = errors.Join(err, p.server.Stop())
		}
	}()
	for _, k := range kept {
		o.say("starting an API server with etcds: %d", k.etcds)
		server, err := controlplane.Start(ctx, controlplane.Options{SplitEtcd: k.split, Fsync: o.Fsync})
		if err != nil {
			return nil, err
		}
		p := &plane{server: server, etcds: k.etcds}
		planes = append(planes, p)
		if err := p.prepare(ctx, o.Leases); err != nil {
			return nil, err
		}
	}
	report := &Report{Leases: o.Leases, Rate: o.Rate, Events: o.Events, Fsync: o.Fsync, Seconds: o.Length.Seconds()}
	for round := range o.Rounds {
		for _, period := range o.Periods {
			pair := Pair{Round: round + 1, PeriodSeconds: period.Seconds()}
			// Whichever is measured first, something else may have begun on the machine meanwhile.
			order := []int{0, 1}
			if round%2 == 1 {
				order = []int{1, 0}
			}
			for _, i := range order {
				m, err := planes[i].measure(ctx, &o, period)
				if err != nil {
					return nil, fmt.Errorf("round %d, renewals every %v, etcds %d: %w", round+1, period, planes[i].etcds, err)
				}
				o.say("round %d, renewals every %v, etcds %d: create %v, update %v, renewal %v",
					round+1, period, planes[i].etcds, m.Create, m.Update, m.Renew)
				if planes[i].etcds == 1 {
					pair.One = m
				} else {
					pair.Three = m
				}
				if err := await.Sleep(ctx, time.Second); err != nil {
					return nil, err
				}
			}
			report.Pairs = append(report.Pairs, pair)
		}
	}
	return report, nil
}
