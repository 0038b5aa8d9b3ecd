package store

import (
	"context"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Store accesses the table and the Leases of one rota. All methods may be called concurrently.
//
// A write returns an error with every outcome except OutcomeDone. timeout must be above 0 and limits the whole call.
// The package comment describes the guarantees of a write.
type Store interface {
	// ReadTable gets the table as of the call or later. If the table is missing, the result is a Snapshot with an empty
	// UID and no error. If the content is not a table, it is a Snapshot with Err.
	ReadTable(ctx context.Context) (member.Snapshot, error)

	// WatchTable calls emit with the current state, and then with every later version, in order. A missing table is also a
	// version. A version may be emitted twice. When the stream breaks, WatchTable reconnects. If it missed versions
	// meanwhile, it emits the current state. listed marks a current state: versions before it may not have been emitted.
	// WatchTable blocks until ctx ends, and returns ctx.Err(). It calls emit from its own goroutine, and reads nothing
	// while emit blocks.
	WatchTable(ctx context.Context, emit func(s member.Snapshot, listed bool)) error

	// CreateTable creates the table. The outcome is OutcomeConflict if it exists.
	CreateTable(ctx context.Context, t *table.Table, timeout time.Duration) (member.Snapshot, member.Outcome, error)

	// SwapTable replaces the table if it still has this UID and version, which are both required. The outcome is
	// OutcomeConflict if it does not, and OutcomeMissing if there is no table.
	SwapTable(
		ctx context.Context, t *table.Table, uid, version string, timeout time.Duration,
	) (member.Snapshot, member.Outcome, error)

	// CreateLease creates a member's Lease. It ignores the argument's UID and Version. The outcome is OutcomeConflict if
	// the Lease exists.
	CreateLease(ctx context.Context, lease member.Lease, timeout time.Duration) (member.Lease, member.Outcome, error)

	// RenewLease renews a member's Lease and never creates one. Version is the version of the last known renewal. Edits by
	// hand since then are not a conflict. A late renewal never overwrites a later one. Renewals of one Lease should not
	// overlap. The outcome is OutcomeMissing if there is no Lease, and OutcomeConflict if it has another UID or holder.
	RenewLease(ctx context.Context, lease member.Lease, timeout time.Duration) (member.Lease, member.Outcome, error)

	// DeleteLease deletes a Lease if it still has this UID and version. The outcome is OutcomeConflict if it was renewed
	// or replaced. With an empty uid it deletes nothing, and returns OutcomeConflict if the Lease exists and
	// OutcomeMissing otherwise.
	DeleteLease(ctx context.Context, id, uid, version string, timeout time.Duration) (member.Outcome, error)

	// WatchLeases follows all Leases of the rota in one stream, or the Leases of ids in one stream each. The first
	// emission is Complete. After a stream breaks, another one may be. WatchLeases blocks like WatchTable.
	WatchLeases(ctx context.Context, all bool, ids []string, emit func(Leases)) error

	// Notify creates a Kubernetes event on the table, for people. It never blocks. An event that cannot be sent is retried
	// for a while. If too many are waiting, new ones are dropped.
	Notify(ctx context.Context, n member.Notify)

	// NotifyNow is Notify for a process that may be about to end: it waits until the event was created or dropped, or ctx
	// ends.
	NotifyNow(ctx context.Context, n member.Notify)

	// Close waits for the events that are being sent, drops the others, and closes idle connections. Watches end with
	// their contexts.
	Close()
}

// Leases is one emission of WatchLeases.
type Leases struct {
	// Leases are new or changed.
	Leases []member.Lease
	// Gone are the IDs of deleted Leases.
	Gone []string
	// Complete is set if Leases holds all the watched Leases that exist.
	Complete bool
}

var _ Store = (*Kubernetes)(nil)
