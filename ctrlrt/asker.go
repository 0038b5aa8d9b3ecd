package ctrlrt

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rota-dev/rota"
)

// asker is the sharded controller that a context belongs to: the context of its reconciles, and of the handlers of its
// sources. It reads its share of the kinds that it reconciles or owns. Code outside of sharded controllers has no asker
// and sees whole kinds.
type asker struct {
	controller string
	owned      map[schema.GroupKind]bool
	chooser    *chooser // set by Build
}

// askerKey is of the asker of one rota: a reconcile of one uses readers of others.
type askerKey struct{ rota *rota.Rota }

func withAsker(ctx context.Context, r *rota.Rota, a *asker) context.Context {
	return context.WithValue(ctx, askerKey{r}, a)
}

// askerFrom returns nil outside of sharded controllers of the rota.
func askerFrom(ctx context.Context, r *rota.Rota) *asker {
	a, _ := ctx.Value(askerKey{r}).(*asker)
	return a
}

// owns says that the controller owns objects of the kind.
func (a *asker) owns(kind schema.GroupKind) bool { return a != nil && a.owned[kind] }

// asking runs a sharded controller with contexts that carry its asker.
type asking struct {
	manager.Runnable
	rota  *rota.Rota
	asker *asker
}

// Start implements manager.Runnable.
func (a asking) Start(ctx context.Context) error {
	return starting{a.Runnable}.Start(withAsker(ctx, a.rota, a.asker))
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (asking) NeedLeaderElection() bool { return false }

// places remembers which kinds were logged for which places in the program.
type places struct{ told sync.Map }

// first returns the place in the program that called this module, and whether it is new that the kind is logged for
// that place and about that.
func (p *places) first(kind schema.GroupKind, about ...string) (place string, first bool) {
	place = caller()
	_, before := p.told.LoadOrStore(strings.Join(append(about, kind.String(), place), " "), true)
	return place, !before
}

// caller returns the file and line of the innermost call from outside of this package and of controller-runtime.
func caller() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "github.com/rota-dev/rota/ctrlrt.(") &&
			!strings.HasPrefix(f.Function, "sigs.k8s.io/controller-runtime/") {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		if !more {
			return "unknown"
		}
	}
}
