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

// Duty implements rota.Rota.Duty.
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

// declareOwnDuties declares the rota's own duties: the coverage scrub, and labeling for each kind. A table may have
// only slot.MaxDuties duties; those that do not fit run by hash slot (see ownSlot).
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

// ownSlot returns the slot whose owner runs one of the rota's own duties: the duty's slot, or a hash slot while the
// duty has no owner. A duty has no owner while some member is too old to support duties, while duties are suspended, or
// if the table has no room for it. The hash slot is the one that releases without duties use, so the duty is also done
// during a rollout from such a release. Two members may briefly run the duty because they have seen different versions
// of the table, which is harmless for labeling and comparing.
func (r *Engine) ownSlot(name string) (s slot.Slot, ok bool) {
	if s, here := r.duties.SlotOf(name); here {
		return s, true
	}
	t := r.tableOf()
	if s, known := t.DutySlot(name); known && t.At(s).Owner != "" {
		return 0, false // another member owns it or is about to
	}
	namespace := ""
	if kind, labels := strings.CutPrefix(name, labelDuties); labels {
		namespace, name = labeller.Queue, kind
	}
	return r.cfg.Slots.Of(slot.HashName(namespace, name)), true
}

// doesOwn reports whether this member runs one of the rota's own duties.
func (r *Engine) doesOwn(name string) bool {
	s, ok := r.ownSlot(name)
	return ok && r.gate.Owns(s)
}

// label starts the labellers, which run until end is called. If this member lacks a permission, for the labellers or
// anything else, label starts nothing and returns an error.
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
	// They keep running while this member leaves, since other members still need the labels.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.labels.Run(life)
	}()
	return func() { stop(); <-ended }, nil
}

// labelDuties is the name prefix of labeling duties; the kind follows.
const labelDuties = table.OwnDuties + "label/"

func labelDuty(kind schema.GroupKind) string { return labelDuties + kind.String() }

// permit returns a Permit that lets the labeller of a kind work while this member has the duty and its gate is open.
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
