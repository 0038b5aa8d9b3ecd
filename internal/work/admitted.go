package work

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/slot"
)

// Admitted is what a context belongs to: the reconcile of a key, a run of a duty, or a batch of the labeller.
type Admitted struct {
	// Gate has admitted it. A program may have several rotas, each with a gate of its own.
	Gate *gate.Gate
	Slot slot.Slot
	// Context is the one that the gate gave.
	Context context.Context //nolint:containedctx // the value of one that is derived from it
	// UID is that of the object when it was admitted; "": it was gone, or there is none.
	UID types.UID
	// Author is the name of the sharded controller; "": there is none.
	Author string
	// Requests counts what is sent with the context; nil: nobody asks.
	Requests *Requests
	// Start starts a function of rota.Go; nil: as Start does.
	Start func(ctx context.Context, f func(context.Context)) error
	// CutShort is called when a function that Start started has returned because its context ended, and the slot is
	// this member's; nil: nobody asks.
	CutShort func()
}

// Requests counts the requests that reconciles send to the API server with their contexts.
type Requests struct {
	// All are those of all clients, Wrapped those of clients that write as a member must.
	All, Wrapped atomic.Int64
}

// anyAdmitted is the key of the innermost Admitted of a context, whichever gate's it is.
type anyAdmitted struct{}

// admittedBy is the key of the Admitted of one gate. In a program with several rotas, a reconcile of one uses clients
// of the others.
type admittedBy struct{ gate *gate.Gate }

// In returns a context that belongs to a.
func (a Admitted) In(ctx context.Context) context.Context {
	return context.WithValue(context.WithValue(ctx, admittedBy{a.Gate}, a), anyAdmitted{}, a)
}

// AdmittedBy returns what of a gate a context belongs to. What another gate has admitted does not count: its slots are
// others.
func AdmittedBy(ctx context.Context, g *gate.Gate) (Admitted, bool) {
	a, ok := ctx.Value(admittedBy{g}).(Admitted)
	return a, ok
}

// Start runs f in a goroutine, as rota.Go does.
func Start(ctx context.Context, f func(context.Context)) error {
	by, ok := ctx.Value(anyAdmitted{}).(Admitted)
	switch {
	case !ok:
		return fmt.Errorf("start a goroutine: %w", gate.ErrNotInFlight)
	case f == nil:
		return errors.New("start a goroutine: its function is nil")
	case by.Start != nil:
		return by.Start(ctx, f)
	}
	task, returned, err := Extend(ctx)
	if err != nil {
		return fmt.Errorf("start a goroutine: %w", err)
	}
	go func() {
		defer returned()
		f(task)
	}()
	return nil
}

// Extend begins a task of the reconcile of ctx, with a context that ends as gate.Extend says. Call returned when
// nothing more will be written for the key.
func Extend(ctx context.Context) (task context.Context, returned func(), err error) {
	by, _ := ctx.Value(anyAdmitted{}).(Admitted)
	task, leave, err := gate.Extend(ctx)
	if err != nil {
		return nil, nil, err
	}
	by.Context = task
	return by.In(task), func() {
		if leave() && by.CutShort != nil {
			by.CutShort()
		}
	}, nil
}

// startedBy says which object's reconcile started a task.
func startedBy(task context.Context) (slot.Slot, types.UID) {
	by, _ := task.Value(anyAdmitted{}).(Admitted)
	return by.Slot, by.UID
}
