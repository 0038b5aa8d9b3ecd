package engine

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/duty"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Duty is Rota.Duty.
func (r *Engine) Duty(name string, run func(ctx context.Context) error) error {
	if table.OwnDuty(name) {
		return fmt.Errorf("duty %s: names that begin with %q are the rota's own", name, table.OwnDuties)
	}
	if run == nil {
		return fmt.Errorf("duty %s: its function is nil", name)
	}
	if err := table.ValidDuty(name); err != nil {
		return err
	}
	var err error
	if !r.setup.during(func() { err = r.duties.Declare(name, duty.Function(run)) }) {
		return fmt.Errorf("duty %s: Run was called before: declare duties before the member starts, or have it wait for "+
			"them with JoinAfter of the rota.Rota", name)
	}
	return err
}

// declareOwnDuties declares the rota's own duties: the coverage scrub, and the labelling of each kind. Those for which
// there is no room, since a table may have slot.MaxDuties, go by hash slots (ownSlot).
func (r *Engine) declareOwnDuties() {
	var names []string
	if r.reports != nil {
		names = r.account.Duties()
	}
	if r.rest != nil {
		for _, kind := range r.share.Kinds() {
			if len(r.share.Labels(kind)) > 0 {
				names = append(names, labelDuty(kind))
			}
		}
	}
	for _, name := range names {
		_ = r.duties.Declare(name, nil)
	}
}

// ownSlot returns the slot whose gate says whether this member does one of the rota's own duties: the duty's, or while
// nobody has the duty a hash slot. That is so while not every member reads of duties, while they are suspended, and
// where the table has no room for them. The hash slot is the one by which releases without duties go, so that the duty
// is done in a rollout from one of these, too. For a moment two members may do it, by different versions of the table.
// Neither labelling nor comparing is harmed by that.
func (r *Engine) ownSlot(name string) (s slot.Slot, ok bool) {
	if s, here := r.duties.SlotOf(name); here {
		return s, true
	}
	t := r.tableOf()
	if s, known := t.DutySlot(name); known && t.At(s).Owner != "" {
		return 0, false // it is another member's, or about to come
	}
	namespace := ""
	if kind, labels := strings.CutPrefix(name, labelDuties); labels {
		namespace, name = labeller.Queue, kind
	}
	return r.cfg.Slots.Of(slot.HashName(namespace, name)), true
}

// doesOwn says whether this member does one of the rota's own duties.
func (r *Engine) doesOwn(name string) bool {
	s, ok := r.ownSlot(name)
	return ok && r.gate.Owns(s)
}

// label starts the labellers, which work until end is called. If a permission is missing that this member needs, for
// them or anything else, it starts nothing and returns an error.
func (r *Engine) label(ctx context.Context) (end func(), err error) {
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
func (r *Engine) permit(kind schema.GroupKind) labeller.Permit {
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
