package store

import (
	"context"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Store is the table and the Leases of one rota. All methods may be called concurrently.
//
// A write returns an error with every outcome but OutcomeDone. timeout, above 0, limits the whole call. The package
// comment says what it promises about a write.
type Store interface {
	// ReadTable gets the table as it is now, or as it becomes during the call. A missing table is a Snapshot with empty
	// UID and no error. Content that is no table is a Snapshot with Err.
	ReadTable(ctx context.Context) (member.Snapshot, error)

	// WatchTable calls emit with the current state, then with every version that follows, in order. A missing table is a
	// version too. A version may come twice. When the stream breaks, WatchTable reconnects by itself. If versions were
	// lost meanwhile, the current state follows. listed marks a current state: there may have been versions before it that
	// were not emitted. WatchTable blocks until ctx ends, and returns ctx.Err(). emit is called from the caller's
	// goroutine. While it blocks nothing is read.
	WatchTable(ctx context.Context, emit func(s member.Snapshot, listed bool)) error

	// CreateTable creates the table. OutcomeConflict: there is one.
	CreateTable(ctx context.Context, t *table.Table, timeout time.Duration) (member.Snapshot, member.Outcome, error)

	// SwapTable replaces the table on condition that it still has this UID and version, which are both required.
	// OutcomeConflict: it has not. OutcomeMissing: there is none.
	SwapTable(
		ctx context.Context, t *table.Table, uid, version string, timeout time.Duration,
	) (member.Snapshot, member.Outcome, error)

	// CreateLease creates a member's Lease. It ignores UID and Version of the argument. OutcomeConflict: there is one.
	CreateLease(ctx context.Context, lease member.Lease, timeout time.Duration) (member.Lease, member.Outcome, error)

	// RenewLease renews a member's Lease and never creates one. Version is that of the last renewal known. An edit by hand
	// since then is no conflict. A late renewal never overwrites a later one. Renewals of one Lease should not overlap.
	// OutcomeMissing: there is none. OutcomeConflict: it has another UID or another holder.
	RenewLease(ctx context.Context, lease member.Lease, timeout time.Duration) (member.Lease, member.Outcome, error)

	// DeleteLease deletes a Lease on condition of its UID and version. OutcomeConflict: it was renewed or replaced. With
	// an empty uid it deletes nothing, and returns OutcomeConflict if there is such a Lease and OutcomeMissing if there is
	// none.
	DeleteLease(ctx context.Context, id, uid, version string, timeout time.Duration) (member.Outcome, error)

	// WatchLeases follows all Leases of the rota in one stream, or those of ids in one stream each. The first emission is
	// Complete. After a break there may be more of these. It blocks as WatchTable does.
	WatchLeases(ctx context.Context, all bool, ids []string, emit func(Leases)) error

	// Notify creates a Kubernetes event on the table, for people. It never blocks. An event that cannot be sent is sent
	// again for a while. If too many wait, new ones are lost.
	Notify(ctx context.Context, n member.Notify)

	// NotifyNow is Notify for a process that may be about to end: it waits until the event was created, was given up, or
	// ctx ends.
	NotifyNow(ctx context.Context, n member.Notify)

	// Close waits for the events of Notify that are being sent, sends no others, and closes idle connections. Watches end
	// with their contexts.
	Close()
}

// Leases is what WatchLeases reports.
type Leases struct {
	// Leases are new or changed.
	Leases []member.Lease
	// Gone are the IDs of those deleted.
	Gone []string
	// Complete says that Leases has all the Leases that are watched. The others are missing.
	Complete bool
}

var _ Store = (*Kubernetes)(nil)
