package rota

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

// Duty declares a duty: work that cannot be sharded, and that exactly one member of the rota does at a time. Call it
// before Run (but see JoinAfter). Members may differ in their duties. The rota spreads its duties evenly over the
// members that have declared them, and moves them as it moves slots.
//
// run is called in a goroutine of its own when the duty comes to this member. It is not called again before it has
// returned. Informers that NewInformer made of kinds that are not sharded then show what the duty's former owner wrote
// with clients of WrapConfig.
//
// The context of run carries the epoch of the duty (EpochFrom). Write with it, or with one derived from it,
// through clients of WrapConfig: such writes are refused once the duty is lost. The context ends, and run has to
// return, when
//
//   - the duty is handed over, because a member joined, or this one leaves (ErrHandover). The duty's next owner
//     waits until run has returned. Until then run may write with context.WithoutCancel, such as to store its state.
//     If run does not return within 5 s, that is logged and an event says so; nothing but this duty waits for it. When
//     this member leaves, it waits for LeaveTimeout at most.
//   - the Lease was not renewed in time, or the duty was lost (ErrExpired or ErrLost). Others may be about to
//     begin, and writes are refused. If this member was expelled, Run returns an error unless run returns within
//     RenewDeadline: a process must not join again while something of its former life goes on.
//
// If run returns nil while it has the duty, the duty is finished until it comes to this member again or goes to another
// one, which runs it anew. If run returns an error, it is logged, and run is called again after 1 s, then 2 s, and so
// on up to 5 minutes. A run of 5 minutes or more sets that back. A panic in run ends the process.
//
// The name is one printable word without a comma, of at most 128 characters, and the same on all members. Names that
// begin with "rota.dev/" are taken. A rota may have slot.MaxDuties duties, those of all builds together. What has no
// room is done by nobody, and the event TableCut tells of it.
//
// While members take part that are too old to know of duties, as in a rollout, nobody does them.
//
// The rota has duties of its own, which count apart: comparing what members hold with what there is, and labelling.
func (r *Rota) Duty(name string, run func(ctx context.Context) error) error {
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
func (r *Rota) declareOwnDuties() {
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
func (r *Rota) ownSlot(name string) (s slot.Slot, ok bool) {
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
func (r *Rota) doesOwn(name string) bool {
	s, ok := r.ownSlot(name)
	return ok && r.gate.Owns(s)
}

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
