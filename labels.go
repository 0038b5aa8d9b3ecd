package rota

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// label starts the labellers, which work until end is called. If a permission is missing that this member needs, for
// them or anything else, it starts nothing and returns an error.
func (r *Rota) label(ctx context.Context) (end func(), err error) {
	if r.rest == nil {
		return func() {}, nil
	}
	if err := r.labels.Locate(ctx); err != nil {
		return nil, err
	}
	if err := r.access(ctx); err != nil {
		return nil, err
	}
	// They go on while this member leaves, since others still need the labels.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.labels.Run(life)
	}()
	return func() { stop(); <-ended }, nil
}

// labelDuties begin the names of the duties of labelling a kind.
const labelDuties = table.OwnDuties + "label/"

func labelDuty(kind schema.GroupKind) string { return labelDuties + kind.String() }

// permit lets the labeller of a kind work while this member has the duty and its gate is open.
func (r *Rota) permit(kind schema.GroupKind) labeller.Permit {
	name, key := labelDuty(kind), gate.Key{Queue: labeller.Queue, Name: kind.String()}
	return func(ctx context.Context) (context.Context, func(), bool) {
		s, ok := r.ownSlot(name)
		if !ok {
			return nil, nil, false
		}
		batch, leave, verdict := r.gate.Enter(ctx, s, key, false)
		return batch, leave, verdict == gate.Admitted
	}
}
