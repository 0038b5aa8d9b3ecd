package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/controlplane"
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

// Run measures all cases on a control plane with one etcd and on one with three, in turns or together. Both run all the
// time: in turns, the one that is not measured has nothing to do.
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
	report := &Report{
		Leases: o.Leases, Rate: o.Rate, Events: o.Events, Fsync: o.Fsync, Together: o.Together, Seconds: o.Length.Seconds(),
	}
	for round := range o.Rounds {
		for _, period := range o.Periods {
			pair := Pair{Round: round + 1, PeriodSeconds: period.Seconds()}
			if err := o.pair(ctx, &pair, planes, period); err != nil {
				return nil, fmt.Errorf("round %d, renewals every %v: %w", round+1, period, err)
			}
			o.say("round %d, renewals every %v: with 1 etcd create %v, update %v, renewal %v; with 3 %v, %v, %v", round+1,
				period, pair.One.Create, pair.One.Update, pair.One.Renew, pair.Three.Create, pair.Three.Update, pair.Three.Renew)
			report.Pairs = append(report.Pairs, pair)
		}
	}
	return report, nil
}

// pair measures a case on both control planes, of one etcd and of three.
func (o *Options) pair(ctx context.Context, out *Pair, planes []*plane, period time.Duration) error {
	results := []*Measured{&out.One, &out.Three}
	if o.Together {
		errs := make([]error, len(planes))
		var work sync.WaitGroup
		for i, p := range planes {
			work.Go(func() { *results[i], errs[i] = p.measure(ctx, o, period) })
		}
		work.Wait()
		return errors.Join(errs...)
	}
	// Whichever is measured first, something else may have begun on the machine meanwhile.
	for i := range planes {
		if out.Round%2 == 0 {
			i = len(planes) - 1 - i
		}
		var err error
		if *results[i], err = planes[i].measure(ctx, o, period); err != nil {
			return fmt.Errorf("etcds %d: %w", planes[i].etcds, err)
		}
		if err := await.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}
