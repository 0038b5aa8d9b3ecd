package rota

import (
	"context"

	"github.com/rota-dev/rota/internal/gate"
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
