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

// Admitted describes what a context was admitted for: the reconcile of a key, a run of a duty, or a batch of the
// labeller.
type Admitted struct {
	// Gate has admitted it. A program may have several rotas, each with its own gate.
	Gate *gate.Gate
	Slot slot.Slot
	// Context is the context that the gate returned.
	Context context.Context //nolint:containedctx // the value of derived contexts
	// UID is the UID of the object when it was admitted, empty if it was gone or there is none.
	UID types.UID
	// Author is the name of the sharded controller, empty if there is none.
	Author string
	// Requests counts the requests sent with the context. It may be nil.
	Requests *Requests
	// Start starts a function of rota.Go. If nil, the package's Start does.
	Start func(ctx context.Context, f func(context.Context)) error
	// CutShort, unless nil, is called when a function started by Start has returned because its context ended, if this
	// member still has the slot.
	CutShort func()
}

// Requests counts the requests that reconciles send to the API server with their contexts.
type Requests struct {
	// All counts requests through any client, and Wrapped requests through wrapped clients.
	All, Wrapped atomic.Int64
}

// anyAdmitted is the key of a context's innermost Admitted, whatever its gate.
type anyAdmitted struct{}

// admittedBy is the key of the Admitted of one gate. In a program with several rotas, a reconcile of one may use
// clients of another.
type admittedBy struct{ gate *gate.Gate }

// In returns a context that contains a.
func (a Admitted) In(ctx context.Context) context.Context {
	return context.WithValue(context.WithValue(ctx, admittedBy{a.Gate}, a), anyAdmitted{}, a)
}

// AdmittedBy returns the Admitted of a context for the given gate. Contexts that only other gates have admitted do not
// count, because their slots are different ones.
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

// Extend begins a task of the reconcile of ctx. The task's context ends as described for gate.Extend. Call returned
// when nothing more will be written for the key.
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

// startedBy returns the slot and UID of the object whose reconcile started a task.
func startedBy(task context.Context) (slot.Slot, types.UID) {
	by, _ := task.Value(anyAdmitted{}).(Admitted)
	return by.Slot, by.UID
}
