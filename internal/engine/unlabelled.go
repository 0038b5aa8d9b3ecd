package engine

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/member"
)

const (
	// unlabelledPeriod is the time between two checks for kinds with objects that cannot be labeled.
	unlabelledPeriod = 10 * time.Second
	// narrowAfter is how long no member may have reported a kind before labels select its objects again. The labeling duty
	// moves, and its next owner has to run into the refusals first.
	narrowAfter = 5 * time.Minute
)

// unlabelledKinds returns the kinds with objects that this member cannot label, each once.
func (r *Engine) unlabelledKinds() (out []coverage.Refused) {
	for _, f := range r.labels.Refused() {
		out = append(out, coverage.Refused{Kind: f.Kind, Since: f.Since.UTC().Truncate(time.Second), Without: f.Slots,
			Error: fmt.Sprintf("objects: %d, the first: %v", f.Objects, f.Err)})
	}
	return coverage.MergeRefused(out)
}

// reportUnlabelled reports the kinds for which this member has begun to fail to label objects and those that it can
// label again.
func (r *Engine) reportUnlabelled(ctx context.Context, reported map[schema.GroupKind]bool) {
	r.reportKinds(ctx, reported, r.unlabelledKinds(),
		func(f coverage.Refused) member.Notify {
			return member.Notify{Reason: "LabelsRefused", Warning: true, Message: f.Unlabelled()}
		}, func(kind schema.GroupKind) member.Notify {
			return member.Notify{Reason: "LabelsAccepted",
				Message: fmt.Sprintf("The API server does not refuse labels of %s that this member writes any more", kind)}
		})
}

// widenUnlabelled makes this member receive all objects of each kind for which some member reports objects that it
// cannot label, until ctx ends. It checks once before it returns.
func (r *Engine) widenUnlabelled(ctx context.Context) {
	if r.reports == nil || r.share.Delivery() == sharding.Filter {
		return
	}
	named := map[schema.GroupKind]time.Duration{}
	r.lookForUnlabelled(ctx, named)
	go func() {
		tick := time.NewTicker(unlabelledPeriod)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.lookForUnlabelled(ctx, named)
			case <-ctx.Done():
				return
			}
		}
	}()
}

// lookForUnlabelled is one check of widenUnlabelled. named is when each kind was last reported.
func (r *Engine) lookForUnlabelled(ctx context.Context, named map[schema.GroupKind]time.Duration) {
	limited, cancel := context.WithTimeout(ctx, r.cfg.RenewDeadline/2)
	defer cancel()
	reports, err := r.reports.ReadUnlabelled(limited)
	if err != nil {
		r.log.V(1).Info("Cannot read which kinds have objects that cannot be labelled; trying again", "cause", err.Error())
	}
	refused := r.unlabelledKinds()
	for _, report := range reports {
		refused = append(refused, report.Unlabelled...)
	}
	now, wide := r.now(), map[schema.GroupKind]bool{}
	for _, f := range refused {
		named[f.Kind] = now
	}
	for kind, at := range named {
		if wide[kind] = err != nil || now-at < narrowAfter; !wide[kind] {
			delete(named, kind)
		}
	}
	r.share.Widen(wide)
}
