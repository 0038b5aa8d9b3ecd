package rota

import (
	"context"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/internal/writes"
)

// EpochFrom returns the epoch of what a context belongs to: a reconcile, or a duty. It is a fencing token for systems
// outside Kubernetes (rule R12): a higher one always belongs to a later owner of the object's slot, or of the duty. ok
// is false if ctx is neither the context of an admitted key or a duty, nor derived from one.
func EpochFrom(ctx context.Context) (epoch uint64, ok bool) { return gate.EpochFrom(ctx) }

// Causes of the end of a context (context.Cause), and what the errors of writes and of Go wrap.
var (
	// ErrHandover is the cause when a slot, or a duty, is handed over to another member.
	ErrHandover = gate.ErrHandover
	// ErrExpired is the cause when the Lease was not renewed in time, and ErrLost when the slot or duty is another
	// member's.
	ErrExpired = gate.ErrExpired
	ErrLost    = gate.ErrLost
	// ErrDeleted is the cause in a function of Go whose object was deleted.
	ErrDeleted = gate.ErrDeleted
	// ErrNotInFlight is that of Go with a context that is not that of a reconcile which goes on.
	ErrNotInFlight = gate.ErrNotInFlight
)

// ErrDeadline is wrapped by the errors of writes that were not sent because this member could not renew its Lease in
// time: others may be about to take its slots.
var ErrDeadline = writes.ErrDeadline

// Go runs f in a goroutine of its own, which may go on after the reconcile of ctx has returned: one that watches
// something outside of the cluster for the object, or runs a controller for it. Use it in place of a go statement.
// A plain goroutine would go on after its object has moved to another member, whose reconcile starts it there, too; and
// nothing tells it, since no event comes for an object that moves.
//
// ctx is what the reconciler was called with, or derived from it. The context of f has the values of ctx, such as the
// epoch (EpochFrom), and does not end with it. Write with it. It ends, and f has to return, when
//
//   - the slot of the object is handed over (ErrHandover), because a member joined, or this one leaves. The next
//     owner waits until f has returned; what takes long is in Status.Stuck, and an event says so. Until then f may
//     write with context.WithoutCancel.
//   - the Lease was not renewed in time, or the slot was lost (ErrExpired or ErrLost). Others may be about to
//     begin, and writes are refused. If this member was expelled, Run returns an error unless f returns within
//     RenewDeadline, as with a reconcile.
//   - the object was deleted, and its key comes up (ErrDeleted).
//
// If it is so already, f is called with a context that has ended.
//
// Each call runs one more f. So a reconciler that notes what it has started calls Go only if nothing runs, and f takes
// that note back when it returns. When f has returned because its context ended, and the slot is this member's, the
// object is reconciled again. If the slot goes to another member, that one reconciles it. A function that returns by
// itself is not followed by a reconcile.
//
// In a duty, the context of f ends with that of the duty, and when the duty's run returns. The run lasts until f has
// returned.
//
// The error is ErrNotInFlight if ctx is not that of a reconcile, or if that has returned; f is not called then. A
// panic in f ends the process. Go may be called concurrently.
func Go(ctx context.Context, f func(ctx context.Context)) error { return work.Start(ctx, f) }
