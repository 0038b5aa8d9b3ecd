package store

import (
	"context"
	"time"

	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/table"
)

// Store is the table and the Leases of one rota. All methods may be called concurrently.
//
// A write returns an error with every outcome but OutcomeDone. timeout, above 0, limits the whole call; for
// what it promises about a write see the package comment.
type Store interface {
	// ReadTable gets the table as it is now, or as it becomes during the call. A missing table is a Snapshot with
	// empty UID and no error; a table that cannot be read as one is a Snapshot with Err.
	ReadTable(ctx context.Context) (member.Snapshot, error)

	// WatchTable calls emit with the current state, then with every version that follows, in order, a missing
	// table included; a version may come twice. When the stream breaks it reconnects by itself; where versions
	// were lost meanwhile, the current state follows. listed marks a current state, before which there may have been
	// versions that were not emitted. It blocks until ctx ends, and returns ctx.Err().
	// emit is called from the caller's goroutine; while it blocks nothing is read.
	WatchTable(ctx context.Context, emit func(s member.Snapshot, listed bool)) error

	// CreateTable creates the table; OutcomeConflict where there is one.
	CreateTable(ctx context.Context, t *table.Table, timeout time.Duration) (member.Snapshot, member.Outcome, error)

	// SwapTable replaces the table on condition that it still has this UID and version, both required:
	// OutcomeConflict otherwise, OutcomeMissing where there is none.
	SwapTable(ctx context.Context, t *table.Table, uid, version string, timeout time.Duration) (member.Snapshot, member.Outcome, error)

	// CreateLease creates a member's Lease; OutcomeConflict where there is one. UID and Version of the argument
	// are ignored.
	CreateLease(ctx context.Context, lease member.Lease, timeout time.Duration) (member.Lease, member.Outcome, error)

	// RenewLease renews a member's Lease and never creates one: OutcomeMissing where there is none,
	// OutcomeConflict where it has another UID or another holder. Version is that of the last renewal known; an
	// edit by hand since then is no conflict. A late renewal never overwrites a later one. Renewals of one Lease
	// should not overlap.
	RenewLease(ctx context.Context, lease member.Lease, timeout time.Duration) (member.Lease, member.Outcome, error)

	// DeleteLease deletes a Lease on condition of its UID and version: OutcomeConflict where it was renewed or
	// replaced. With an empty uid it deletes nothing, and says OutcomeConflict where there is such a Lease,
	// OutcomeMissing where there is none.
	DeleteLease(ctx context.Context, id, uid, version string, timeout time.Duration) (member.Outcome, error)

	// WatchLeases follows all Leases of the rota, in one stream, or those of ids, in one stream each. The first
	// emission is Complete; there may be further ones, after a break. It blocks as WatchTable does.
	WatchLeases(ctx context.Context, all bool, ids []string, emit func(Leases)) error

	// Notify tells people, by a Kubernetes event on the table. It never blocks. What cannot
	// be sent is sent again for a while; beyond a number of such events new ones are lost.
	Notify(ctx context.Context, n member.Notify)
}

// Leases is what WatchLeases reports.
type Leases struct {
	// Leases are new or changed.
	Leases []member.Lease
	// Gone are the IDs of those deleted.
	Gone []string
	// Complete says that Leases are all there are of those watched: the others are missing.
	Complete bool
}

var (
	_ Store = (*Kubernetes)(nil)
)
