package engine

import (
	"context"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/moves"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/replica"
)

// incarnation is a replica together with its observers and background tasks.
type incarnation struct {
	*replica.Replica
	rota  *Engine
	moves *moves.Tracker
	// plan is the serial of the last Swap that planned moves. Only one Swap is under way at a time.
	plan uint64
}

var _ replica.Observer = (*incarnation)(nil)

func newIncarnation(ctx context.Context, r *Engine) *incarnation {
	i := &incarnation{rota: r, moves: moves.New(r.cfg.Self.ID)}
	i.Replica = replica.New(ctx, replica.Env{
		Config: r.cfg, Member: r.decide, Clock: r.clock, State: r.state, Store: r.store, Election: r.candidacy(),
		Parts: r.parts, Gate: r.gate, Long: &r.long, Writes: r.share, Watch: i, Log: r.log, SetDeadline: r.setDeadline,
		Loads: r.memberLoads, Memory: r.memoryReport, Emit: r.emit,
		Failed: r.report, Denied: r.denied, Fatal: r.bypassed, Beside: i.beside, LeaveTimeout: r.opts.LeaveTimeout,
		InFlight: func() []gate.Flight { return r.stuck(0) },
	})
	r.present.Store(i)
	return i
}

// run runs the incarnation until it ends and returns how it ended. When ctx ends, the incarnation leaves.
func (i *incarnation) run(ctx context.Context) member.Stop {
	defer i.rota.present.Store(nil)
	return i.Run(ctx.Done())
}

// beside starts the tasks that inform other members about this one.
func (i *incarnation) beside() {
	if i.rota.reports != nil {
		i.Go(func() { i.rota.reporter.Publish(i, i.report) })
		i.Go(func() { i.rota.account.Run(i) })
	}
}

// setDeadline sets the time at which the gate and writes end, on the deadline clock. own is the deadline from the
// member's own Lease.
func (r *Engine) setDeadline(at, own time.Duration) {
	r.state.SetDeadline(at, own)
	r.gate.SetDeadline(at)
	r.keeper.SetDeadline(at)
}

// Event counts the outcomes of requests and measures handovers.
func (i *incarnation) Event(e member.Event) {
	switch e := e.(type) {
	case member.Renewed:
		i.rota.metrics.renewed(e.Outcome)
	case member.Swapped:
		i.rota.metrics.swap(e.Outcome)
		if i.plan != 0 && e.Serial == i.plan {
			i.rota.metrics.plans.WithLabelValues(e.Outcome.String()).Inc()
			i.plan = 0
		}
	case member.Warmed:
		i.moves.Warmed(i.rota.now(), e.Slots, e.Round)
	case member.Drained:
		i.moves.Drained(i.rota.now(), e.Slots, e.Round)
	}
}

// Action measures handovers.
func (i *incarnation) Action(a member.Action) {
	switch a := a.(type) {
	case member.Swap:
		if old := i.rota.state.Snapshot().Table; old != nil && plans(old, a.Table) {
			i.plan = a.Serial
		}
	case member.Warm:
		i.moves.Warming(a.Slots, a.Round)
	case member.Drain:
		i.moves.Draining(i.rota.now(), a.Slots, a.Round)
	case member.Open:
		now := i.now()
		came := i.moves.Opened(now.Mono, now.Wall, a.Slots)
		i.rota.metrics.landed(came)
		if len(came) > 0 {
			uid := i.rota.state.Snapshot().UID
			i.trace(func(t moves.Tracing) { t.Came(uid, now, came) })
		}
	}
}

// Seen measures handovers.
func (i *incarnation) Seen(s member.Snapshot) {
	now := i.now()
	if given := i.moves.Seen(now.Mono, s.Table); len(given) > 0 {
		i.trace(func(t moves.Tracing) { t.Went(s.UID, now, given) })
	}
}

func (i *incarnation) now() moves.Moment { return moves.Moment{Mono: i.rota.now(), Wall: time.Now()} }

// trace records spans of handovers in a separate goroutine, because the caller's goroutine renews the Lease.
func (i *incarnation) trace(record func(moves.Tracing)) {
	if provider := i.rota.opts.TracerProvider; provider != nil {
		i.Go(func() { record(moves.NewTracing(provider, i.rota.Name().String(), i.ID())) })
	}
}

// plans reports whether next plans moves that old did not: it sets the next owner of slots, or gives a new owner to
// slots that have none or whose owner is expelled.
func plans(old, next *table.Table) bool {
	return slices.ContainsFunc(next.Runs, func(r table.Run) bool {
		for s := r.Slots.First; ; s++ {
			before := old.At(s)
			_, stays := next.Member(before.Owner)
			if r.Next != "" && r.Next != before.Next || r.Owner != "" && r.Owner != before.Owner && !stays {
				return true
			}
			if s == r.Slots.Last {
				return false
			}
		}
	})
}
