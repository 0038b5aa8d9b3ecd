package rota

import (
	"context"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/internal/writes"
)

// EpochFrom returns the epoch of the reconcile or duty that a context belongs to. It is a fencing token for systems
// outside Kubernetes (rule R12): a later owner of the object's slot, or of the duty, always has a higher epoch. ok is
// false if ctx is not the context of a reconcile or a duty, nor derived from one.
func EpochFrom(ctx context.Context) (epoch uint64, ok bool) { return gate.EpochFrom(ctx) }

// Causes of the end of a context (context.Cause). Errors of writes and of Go wrap them.
var (
	// ErrHandover is the cause when a slot, or a duty, is handed over to another member.
	ErrHandover = gate.ErrHandover
	// ErrExpired is the cause when the Lease was not renewed in time, ErrLost when another member has the slot or duty.
	ErrExpired = gate.ErrExpired
	ErrLost    = gate.ErrLost
	// ErrDeleted is the cause in a function of Go whose object was deleted.
	ErrDeleted = gate.ErrDeleted
	// ErrNotInFlight is returned by Go if its context does not belong to a running reconcile or duty.
	ErrNotInFlight = gate.ErrNotInFlight
)

// ErrDeadline is returned, wrapped, for a write that was not sent because this member could not renew its Lease in
// time. Other members may be about to take its slots.
var ErrDeadline = writes.ErrDeadline

// Go runs f in a new goroutine that may outlive the reconcile of ctx, for instance to watch something outside the
// cluster for the object. Use it instead of a go statement. When the object moves to another member, a plain goroutine
// would get no event and keep running while the other member starts its own.
//
// ctx is the context that the reconciler was called with, or derived from it. The context of f has the values of ctx,
// such as the epoch (EpochFrom), but does not end with ctx. Writes in f must use it. It ends, and f must return, when
//
//   - the object's slot is handed over (ErrHandover), because a member joined or this one leaves. The next owner waits
//     until f has returned. Status.Stuck lists functions that take long, and an event reports them. Until then f may
//     write with context.WithoutCancel.
//   - the Lease was not renewed in time, or the slot was lost (ErrExpired or ErrLost). Another member may be about to
//     start, and writes are refused. If this member was expelled, Run returns an error unless f returns within
//     RenewDeadline, as with a reconcile.
//   - the object was deleted, and its key is taken from the queue (ErrDeleted).
//
// If one of these has already happened, f is called with a context that has ended.
//
// Each call runs another f. A reconciler should keep a record of the functions that it has started, call Go only if
// nothing is running, and have f delete the record when it returns. If f returns because its context ended, the object
// is reconciled again, by the slot's owner at that time. If f returns earlier, no reconcile follows.
//
// In a duty, the context of f ends with the duty's context, and when the duty's function returns. The duty lasts until
// f has returned.
//
// Go returns ErrNotInFlight, and does not call f, if ctx is not the context of a reconcile or duty, or if that has
// returned. A panic in f ends the process. Go may be called concurrently.
func Go(ctx context.Context, f func(ctx context.Context)) error { return work.Start(ctx, f) }
