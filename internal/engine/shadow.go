package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/internal/report"
	"github.com/rota-dev/rota/slot"
)

const (
	// shadowLeave is the longest time until Start returns after its context has ended: a shadow should not delay the end
	// of a leader's process.
	shadowLeave = 2 * time.Second
	// shadowRetry is how long a shadow that has failed waits before it joins again.
	shadowRetry = time.Minute
)

// Shadow implements rota.Shadow.
type Shadow struct {
	cfg   *rest.Config
	opts  Options
	kinds []schema.GroupKind
	log   logr.Logger
	retry time.Duration
	// from lists the objects; if nil, the API server does. made, unless nil, is called with each member before it runs.
	// Tests set both.
	from report.Objects
	made func(*Engine)
}

// NewShadow implements rota.NewShadow.
func NewShadow(cfg *rest.Config, opts Options, kinds ...schema.GroupKind) (*Shadow, error) {
	switch {
	case opts.Name == "":
		return nil, errors.New("rota: Options.Name is empty: give the shadow the name that the rota would have")
	case cfg == nil:
		return nil, fmt.Errorf("rota %s: NewShadow got no config: pass the config of the cluster", opts.Name)
	case len(kinds) == 0:
		return nil, fmt.Errorf("rota %s: NewShadow got no kinds: name those that would be sharded", opts.Name)
	case opts.Solo || opts.Group != nil:
		return nil, fmt.Errorf("rota %s: NewShadow with Options.Solo or Options.Group: leave them out", opts.Name)
	}
	for _, kind := range kinds {
		if kind.Kind == "" {
			return nil, fmt.Errorf("rota %s: NewShadow got a kind without a name: %+v", opts.Name, kind)
		}
	}
	if names.IsShadow(opts.Name) {
		return nil, fmt.Errorf("rota %s: give the shadow the name that the rota would have, without %s", opts.Name,
			names.ShadowSuffix)
	}
	if opts.Delivery == sharding.ShardSelector {
		opts.Key = cmp.Or(opts.Key, slot.KeyUID) // the default of New
	}
	opts.Name += names.ShadowSuffix
	opts.Delivery, opts.Label, opts.shadow = sharding.Filter, false, true
	opts.TracerProvider, opts.Address = nil, ""
	opts.LeaderElectionID, opts.LeaderElectionNamespace = "", ""
	opts.LeaveTimeout = min(cmp.Or(opts.LeaveTimeout, shadowLeave), shadowLeave)
	own := rest.CopyConfig(cfg)
	own.RateLimiter = nil // not the operator's rate limiter
	s := &Shadow{cfg: own, opts: opts, kinds: kinds, retry: shadowRetry}
	r, err := s.member()
	if err != nil {
		return nil, err
	}
	s.log = r.log
	return s, nil
}

// member returns an Engine that only takes part in the table and counts objects.
func (s *Shadow) member() (*Engine, error) {
	r, err := New(s.cfg, s.opts)
	if err != nil {
		return nil, err
	}
	from := s.from
	if from == nil {
		if from, err = report.NewLister(s.cfg, s.opts.LabelNamespaces); err != nil {
			return nil, err
		}
	}
	r.parts = func(calls *replica.Calls) []replica.Part {
		all := r.cfg.Slots.All().Union(dutySlots(r.cfg.Slots))
		return []replica.Part{{Holder: replica.Wait(replica.Bystander{}, calls), Slots: all}}
	}
	r.account, err = report.NewExpectation(report.ExpectationEnv{
		Config: r.cfg, Kinds: s.kinds, From: from, Period: s.opts.ScrubPeriod, Log: r.log, Now: r.now, Table: r.tableOf,
	})
	if err != nil {
		return nil, err
	}
	if s.made != nil {
		s.made(r)
	}
	return r, nil
}

// Start implements rota.Shadow.Start.
func (s *Shadow) Start(ctx context.Context) error {
	s.log.Info("SHADOW: this process joins a rota of shadows, which works on nothing; the operator is not changed")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.again(ctx)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-ended:
	case <-time.After(s.opts.LeaveTimeout):
		s.log.Info("The shadow has not left in time; others will take its slots when its Lease has run out", "waited",
			s.opts.LeaveTimeout.String())
	}
	return nil
}

// again takes part until ctx ends. It joins again after each failure.
func (s *Shadow) again(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.run(ctx); ctx.Err() == nil {
			s.log.Error(err, "The shadow has stopped, and starts again; the operator is not concerned",
				append(report.StackOf(err), "after", s.retry.String())...)
			_ = await.Sleep(ctx, s.retry)
		}
	}
}

func (s *Shadow) run(ctx context.Context) (err error) {
	defer report.Caught(&err)
	r, err := s.member()
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// NeedLeaderElection returns false, so that the shadow runs on every replica.
func (*Shadow) NeedLeaderElection() bool { return false }
