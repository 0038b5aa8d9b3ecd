package rota

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/internal/moves"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// incarnation drives one member.Member: it steps it with events and carries out its actions. Actions on slots are in
// handover.go.
type incarnation struct {
	rota   *Rota
	id     string
	member stepper
	box    *mailbox
	moves  *moves.Tracker
	// elector is nil unless the rota has to hold the Lease of a leader election.
	elector *elector
	// settling are drained slots for which the versions of some writes are not known yet.
	settling *mailbox
	calls    sync.WaitGroup
	// ctx ends with the incarnation.
	ctx    context.Context //nolint:containedctx // the incarnation is a context's life
	cancel context.CancelFunc
	stop   *member.Stop

	// plan is the serial of the last Swap that planned moves.
	plan uint64

	// parts are who has which slots. Each slot is in one of them.
	parts []part

	unwatch func()
	// leaseUID is the UID of this incarnation's Lease, once there is one.
	leaseUID atomic.Pointer[string]
	// leaving is when it began to leave, on the clock of now; 0: it does not.
	leaving atomic.Int64

	mu sync.Mutex
	// draining are the rounds of drains that were not called off.
	draining map[slot.Slot]uint64
}

// lookEvery is how often the deadline is checked, whatever else is due: timers stop while a machine sleeps and only go
// on once it is awake.
const lookEvery = 250 * time.Millisecond

func newIncarnation(r *Rota) *incarnation {
	r.mu.Lock()
	r.id = r.cfg.Self.ID
	r.tableInvalid = ""
	r.deadline = min(r.deadline, r.clock.late()) // the former one's
	r.mu.Unlock()
	tracker := moves.New(r.cfg.Self.ID)
	r.moves.Store(tracker)
	i := &incarnation{
		rota: r, id: r.cfg.Self.ID, member: r.decide(), moves: tracker,
		box: newMailbox(), settling: newMailbox(), unwatch: func() {}, parts: r.parts(),
		draining: map[slot.Slot]uint64{},
	}
	i.elector = newElector(i)
	r.elector.Store(i.elector)
	return i
}

// run returns how the incarnation ended. ctx's end makes it leave.
func (i *incarnation) run(ctx context.Context) member.Stop {
	i.ctx, i.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer i.end()
	i.calls.Go(func() {
		_ = i.rota.store.WatchTable(i.ctx, func(s member.Snapshot, listed bool) {
			i.box.put(member.TableSeen{Snapshot: s, Listed: listed})
		})
	})
	i.calls.Go(i.settleDrained)
	if i.elector != nil {
		i.calls.Go(func() { i.elector.run(i.ctx) })
		i.calls.Go(func() { i.elector.watch(i.ctx) })
	}
	if i.rota.reports != nil {
		i.calls.Go(i.publish)
		i.calls.Go(func() { i.rota.account.run(i) })
	}
	i.step(member.Tick{})
	leave := ctx.Done()
	var giveUp <-chan time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i.stop == nil {
		timer.Reset(min(i.member.Wake()-i.rota.now(), lookEvery))
		select {
		case <-leave:
			leave = nil
			giveUp = time.After(i.rota.opts.LeaveTimeout)
			i.leaving.Store(int64(i.rota.now()))
			i.step(member.Leave{})
		case err := <-i.rota.denied:
			if i.rota.hasJoined() {
				continue // it worked before, so the permission may come back
			}
			return member.Stop{Err: err}
		case err := <-i.rota.bypassed:
			return member.Stop{Err: err}
		case <-giveUp:
			i.each(i.rota.tableOf().Owned(i.id), part.abandon)
			return member.Stop{Err: fmt.Errorf("left after %v with work in flight, without having handed over all slots: %v",
				i.rota.opts.LeaveTimeout, i.rota.stuck(0))}
		case <-i.box.filled:
			for _, e := range i.box.take(i.rota.share.Versions) {
				if d, ok := e.(member.Drained); ok && !i.elector.knows(d.Slots) {
					d.Stale = true
					e = d
				}
				if l, ok := e.(loaded); ok {
					if e, ok = i.admit(l); !ok {
						continue
					}
				}
				i.step(e)
			}
		case <-timer.C:
			if i.rota.now() >= i.member.Wake() {
				i.step(member.Tick{})
			}
			i.look()
		}
	}
	return *i.stop
}

// end stops everything that the incarnation started, and gives up all slots.
func (i *incarnation) end() {
	i.rota.moves.Store(nil)
	i.rota.elector.Store(nil)
	for _, p := range i.parts {
		i.callOff(p.slots)
		p.shut(p.slots)
	}
	i.cancel()
	i.calls.Wait()
	if i.elector != nil {
		i.elector.release()
	}
	for _, p := range i.parts { // a load may have gone on until now
		p.release(p.slots)
	}
}

func (i *incarnation) step(e member.Event) {
	if i.stop != nil {
		return
	}
	i.observe(e)
	i.act(e)
	i.look()
}

// look has the gate check its deadline. It may have passed between a Step and its actions, or while the machine slept.
// Then the gate has lapsed and the member does not know it yet (rule R13).
func (i *incarnation) look() {
	if i.rota.gate.Expire() {
		i.act(member.Lapsed{})
	}
}

// act steps the member with an event, and carries out its actions.
func (i *incarnation) act(e member.Event) {
	for _, a := range i.member.Step(i.rota.clock.now(), e) {
		i.do(a)
	}
}

// observe takes from an event what status and metrics show.
func (i *incarnation) observe(e member.Event) {
	var s member.Snapshot
	watched := false
	switch e := e.(type) {
	case member.TableSeen:
		s, watched = e.Snapshot, !e.Consistent
	case member.Swapped:
		i.rota.metrics.swap(e.Outcome)
		i.elector.swapped(e)
		if i.plan != 0 && e.Serial == i.plan {
			i.rota.metrics.plans.WithLabelValues(e.Outcome.String()).Inc()
			i.plan = 0
		}
		s = e.Snapshot
	case member.Warmed:
		i.moves.Warmed(i.rota.now(), e.Slots, e.Round)
	case member.Drained:
		i.moves.Drained(i.rota.now(), e.Slots, e.Round)
	}
	gone := watched && s.UID == "" && s.Err == nil
	if watched {
		i.rota.mu.Lock()
		i.rota.tableGone = gone
		i.rota.mu.Unlock()
	}
	if gone || i.rota.reads(s.Table) && i.seen(s) {
		i.elector.seen(s.Table, s.UID)
	}
}

// reads says that a table is one for members with the options of this one. The member goes by no other (rule R4).
func (r *Rota) reads(t *table.Table) bool {
	return t != nil && t.Slots == r.cfg.Slots && t.Key == r.cfg.Key
}

// seen keeps a version of the table if it is newer than the one before. It says whether it is.
func (i *incarnation) seen(s member.Snapshot) bool {
	i.rota.mu.Lock()
	defer i.rota.mu.Unlock()
	if old := i.rota.snapshot; old.UID == s.UID && resourceversion.Compare(old.Version, s.Version) > 0 {
		return false
	}
	i.rota.snapshot = s
	now := i.now()
	if given := i.moves.Seen(now.Mono, s.Table); len(given) > 0 {
		i.trace(func(t moves.Tracing) { t.Went(s.UID, now, given) })
	}
	if _, ok := s.Table.Member(i.id); ok {
		select {
		case <-i.rota.joined:
		default:
			close(i.rota.joined)
		}
	}
	return true
}

// opens notes that slots were opened.
func (i *incarnation) opens(set slot.Set) {
	now := i.now()
	came := i.moves.Opened(now.Mono, now.Wall, set)
	i.rota.metrics.landed(came)
	if len(came) == 0 {
		return
	}
	i.rota.mu.Lock()
	uid := i.rota.snapshot.UID
	i.rota.mu.Unlock()
	i.trace(func(t moves.Tracing) { t.Came(uid, now, came) })
}

func (i *incarnation) now() moves.Moment { return moves.Moment{Mono: i.rota.now(), Wall: time.Now()} }

// trace tells of handovers in a goroutine of its own: this one renews the Lease.
func (i *incarnation) trace(tell func(moves.Tracing)) {
	provider := i.rota.opts.TracerProvider
	if provider == nil {
		return
	}
	i.calls.Go(func() { tell(moves.NewTracing(provider, i.rota.Name().String(), i.id)) })
}

func (i *incarnation) do(a member.Action) {
	switch a := a.(type) {
	case member.CreateLease:
		i.renew(a.Lease, a.Timeout, i.rota.store.CreateLease)
	case member.RenewLease:
		i.renew(a.Lease, a.Timeout, i.rota.store.RenewLease)
	case member.ReadTable:
		i.read()
	case member.CreateTable:
		i.swap(a.Serial, func() (member.Snapshot, member.Outcome, error) {
			return i.rota.store.CreateTable(i.ctx, a.Table, a.Timeout)
		})
	case member.Swap:
		i.planned(a)
		i.elector.swapping(a)
		i.swap(a.Serial, func() (member.Snapshot, member.Outcome, error) {
			return i.rota.store.SwapTable(i.ctx, a.Table, a.UID, a.Version, a.Timeout)
		})
	case member.WatchLeases:
		i.watchLeases(a)
	case member.DeleteLease:
		i.calls.Go(func() {
			outcome, err := i.rota.store.DeleteLease(i.ctx, a.ID, a.UID, a.Version, a.Timeout)
			i.complain("delete the Lease of "+a.ID, err)
			i.box.put(member.LeaseDeleted{ID: a.ID, Outcome: outcome})
		})
	case member.Deadline:
		if i.elector != nil {
			i.elector.member(a.At)
		} else {
			i.setDeadline(a.At, a.At)
		}
	case member.Notify:
		i.notify(a)
	case member.Stop:
		i.stop = &a
	default:
		i.doSlots(a)
	}
}

func (r *Rota) registered() []*Controller {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.controllers
}

func (i *incarnation) renew(l member.Lease, timeout time.Duration,
	call func(context.Context, member.Lease, time.Duration) (member.Lease, member.Outcome, error),
) {
	start := i.rota.clock.late()
	i.calls.Go(func() {
		renewed, outcome, err := call(i.ctx, l, timeout)
		i.complain("renew the Lease", err)
		i.rota.metrics.renewed(outcome)
		if outcome == member.OutcomeDone {
			i.leaseUID.Store(&renewed.UID)
		}
		i.box.put(member.Renewed{Start: start, Outcome: outcome, Lease: renewed})
	})
}

func (i *incarnation) read() {
	begun := i.rota.now()
	i.calls.Go(func() {
		snapshot, err := i.rota.store.ReadTable(i.ctx)
		i.complain("read the table", err)
		if err != nil {
			i.box.put(member.ReadFailed{})
			return
		}
		i.box.put(member.TableSeen{Snapshot: snapshot, Consistent: true, Begun: begun})
	})
}

func (i *incarnation) swap(serial uint64, call func() (member.Snapshot, member.Outcome, error)) {
	i.calls.Go(func() {
		snapshot, outcome, err := call()
		if outcome != member.OutcomeConflict {
			i.complain("write the table", err)
		}
		i.box.put(member.Swapped{Serial: serial, Outcome: outcome, Snapshot: snapshot})
	})
}

func (i *incarnation) watchLeases(a member.WatchLeases) {
	i.unwatch()
	ctx, cancel := context.WithCancel(i.ctx)
	i.unwatch = cancel
	i.calls.Go(func() {
		_ = i.rota.store.WatchLeases(ctx, a.All, a.IDs, func(l store.Leases) {
			i.box.put(member.LeasesSeen{Leases: l.Leases, Gone: l.Gone, Complete: l.Complete, Watch: a.Serial})
		})
	})
}

func (i *incarnation) notify(n member.Notify) {
	if why := i.elector.waiting(); why != "" && n.Reason == "Lapsed" {
		n.Message = why
	}
	switch n.Reason {
	case "TableInvalid":
		i.rota.setTableInvalid(n.Message)
	case "TableValid":
		i.rota.setTableInvalid("")
	}
	i.rota.tell(i.ctx, n)
}

// setTableInvalid notes why the table is invalid, and nothing is worked on; empty: it is not.
func (r *Rota) setTableInvalid(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tableInvalid = why
}

// tableErr says why nothing is worked on: the table is invalid.
func (r *Rota) tableErr() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tableInvalid == "" {
		return nil
	}
	return fmt.Errorf("rota %s: %s", r.Name(), r.tableInvalid)
}

// complain logs an error. The member decides what to do about it.
func (i *incarnation) complain(what string, err error) {
	if err != nil && i.ctx.Err() == nil {
		i.rota.report("Cannot "+what, err)
	}
}
