package rota

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/gate"
)

// Go runs f in a goroutine of its own, which may go on after the reconcile of ctx has returned: one that watches
// something outside of the cluster for the object, or runs a controller for it. Use it in place of a go statement.
// A plain goroutine would go on after its object has moved to another member, whose reconcile starts it there, too; and
// nothing tells it, since no event comes for an object that moves.
//
// ctx is what the reconciler of a sharded controller was called with, or derived from it; that of f will do as well.
// The context of f has the values of ctx, such as the epoch (gate.EpochFrom), and does not end with it. Write with it.
// It ends, and f has to return, when
//
//   - the slot of the object is handed over (gate.ErrHandover), because a member joined, or this one leaves. The next
//     owner waits until f has returned; what takes long is in Status.Stuck. Until then f may write with
//     context.WithoutCancel.
//   - the Lease was not renewed in time, or the slot was lost (gate.ErrExpired or gate.ErrLost). Others may be about to
//     begin, and writes are refused.
//
// If it is so already, f is called with a context that has ended. It does not end when the object is deleted: the next
// reconcile finds that.
//
// Each call runs one more f. So a reconciler that notes what it has started calls Go only if nothing runs, and f takes
// that note back when it returns. If the slot stays with this member after all, or comes back after a lapse, the object
// is reconciled again when f has returned. If it goes to another member, that one reconciles it.
//
// The error is gate.ErrNotInFlight if ctx is not that of a reconcile, or if that has returned; f is not called then. A
// panic in f ends the process. Go may be called concurrently.
func Go(ctx context.Context, f func(ctx context.Context)) error {
	by, ok := admittedFrom(ctx)
	if !ok {
		return fmt.Errorf("start a goroutine: %w", gate.ErrNotInFlight)
	}
	if f == nil {
		return errors.New("start a goroutine: its function is nil")
	}
	task, leave, err := gate.Extend(ctx)
	if err != nil {
		return fmt.Errorf("start a goroutine: %w", err)
	}
	by.ctx = task
	go func() {
		f(context.WithValue(task, slotKey{}, by))
		if leave() && by.controller != nil {
			by.controller.enqueue([]types.NamespacedName{by.key}, PriorityEvent)
		}
	}()
	return nil
}
