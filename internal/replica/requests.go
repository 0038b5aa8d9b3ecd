package replica

import (
	"context"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/store"
)

// Requests sends a driver's requests. Its methods do not block. They call answer once, or never if the incarnation ends
// first. timeout is as in store.Store.
type Requests interface {
	CreateLease(l member.Lease, timeout time.Duration, answer func(member.Lease, member.Outcome))
	RenewLease(l member.Lease, timeout time.Duration, answer func(member.Lease, member.Outcome))
	DeleteLease(a member.DeleteLease, answer func(member.Outcome))
	// ReadTable answers with ok false if the table could not be read.
	ReadTable(answer func(s member.Snapshot, ok bool))
	CreateTable(a member.CreateTable, answer func(member.Snapshot, member.Outcome))
	SwapTable(a member.Swap, answer func(member.Snapshot, member.Outcome))
	// ReadLoads answers without reports if they could not be read.
	ReadLoads(answer func([]planner.LoadReport))
	// WatchLeases delivers the events to the member and replaces an earlier call.
	WatchLeases(a member.WatchLeases)
}

// requests sends requests to a store, each in a separate goroutine.
type requests struct {
	store store.Store
	calls *Calls
	post  func(member.Event)
	// loads reads the loads that members report. It blocks.
	loads func(ctx context.Context) ([]planner.LoadReport, error)
	// memory measures the process's memory.
	memory func() planner.MemoryReport
	// failed logs an error. The member decides how to handle it.
	failed  func(what string, err error)
	unwatch context.CancelFunc
}

func (r *requests) complain(what string, err error) {
	if err != nil && r.calls.ctx.Err() == nil {
		r.failed("Cannot "+what, err)
	}
}

func (r *requests) CreateLease(l member.Lease, timeout time.Duration, answer func(member.Lease, member.Outcome)) {
	r.lease(r.store.CreateLease, l, timeout, answer)
}

func (r *requests) RenewLease(l member.Lease, timeout time.Duration, answer func(member.Lease, member.Outcome)) {
	r.lease(r.store.RenewLease, l, timeout, answer)
}

func (r *requests) lease(send func(context.Context, member.Lease, time.Duration) (member.Lease, member.Outcome, error),
	l member.Lease, timeout time.Duration, answer func(member.Lease, member.Outcome),
) {
	r.calls.Go(func() {
		l.Memory = r.memory()
		renewed, outcome, err := send(r.calls.ctx, l, timeout)
		r.complain("renew the Lease", err)
		answer(renewed, outcome)
	})
}

func (r *requests) DeleteLease(a member.DeleteLease, answer func(member.Outcome)) {
	r.calls.Go(func() {
		outcome, err := r.store.DeleteLease(r.calls.ctx, a.ID, a.UID, a.Version, a.Timeout)
		r.complain("delete the Lease of "+a.ID, err)
		answer(outcome)
	})
}

func (r *requests) ReadTable(answer func(s member.Snapshot, ok bool)) {
	r.calls.Go(func() {
		snapshot, err := r.store.ReadTable(r.calls.ctx)
		r.complain("read the table", err)
		answer(snapshot, err == nil)
	})
}

func (r *requests) CreateTable(a member.CreateTable, answer func(member.Snapshot, member.Outcome)) {
	r.table(func() (member.Snapshot, member.Outcome, error) {
		return r.store.CreateTable(r.calls.ctx, a.Table, a.Timeout)
	}, answer)
}

func (r *requests) SwapTable(a member.Swap, answer func(member.Snapshot, member.Outcome)) {
	r.table(func() (member.Snapshot, member.Outcome, error) {
		return r.store.SwapTable(r.calls.ctx, a.Table, a.UID, a.Version, a.Timeout)
	}, answer)
}

func (r *requests) table(send func() (member.Snapshot, member.Outcome, error),
	answer func(member.Snapshot, member.Outcome),
) {
	r.calls.Go(func() {
		snapshot, outcome, err := send()
		if outcome != member.OutcomeConflict {
			r.complain("write the table", err)
		}
		answer(snapshot, outcome)
	})
}

func (r *requests) ReadLoads(answer func([]planner.LoadReport)) {
	r.calls.Go(func() {
		reports, err := r.loads(r.calls.ctx)
		r.complain("read how busy the members are", err)
		answer(reports)
	})
}

func (r *requests) WatchLeases(a member.WatchLeases) {
	if r.unwatch != nil {
		r.unwatch()
	}
	ctx, cancel := context.WithCancel(r.calls.ctx)
	r.unwatch = cancel
	r.calls.Go(func() {
		_ = r.store.WatchLeases(ctx, a.All, a.IDs, func(l store.Leases) {
			r.post(member.LeasesSeen{Leases: l.Leases, Gone: l.Gone, Complete: l.Complete, Watch: a.Serial})
		})
	})
}

// watchTable delivers the versions of the table to the member.
func (r *requests) watchTable() {
	r.calls.Go(func() {
		_ = r.store.WatchTable(r.calls.ctx, func(s member.Snapshot, listed bool) {
			r.post(member.TableSeen{Snapshot: s, Listed: listed})
		})
	})
}
