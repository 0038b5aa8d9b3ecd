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

// asker is the sharded controller that a context belongs to. The contexts of its reconciles and of its sources'
// handlers carry it. Reads with such a context return the share of the kinds that the controller reconciles or owns.
// Other code has no asker, and its reads return all objects.
type asker struct {
	controller string
	owned      map[schema.GroupKind]bool
	chooser    *chooser // set by Build
	twin       *twin
}

// askerKey is the context key of one rota's asker. A reconcile of one rota may use readers of another.
type askerKey struct{ rota *rota.Rota }

func withAsker(ctx context.Context, r *rota.Rota, a *asker) context.Context {
	return context.WithValue(ctx, askerKey{r}, a)
}

// askerFrom returns the asker of a context, or nil outside of the rota's sharded controllers.
func askerFrom(ctx context.Context, r *rota.Rota) *asker {
	a, _ := ctx.Value(askerKey{r}).(*asker)
	return a
}

// owns reports whether the controller owns objects of the kind.
func (a *asker) owns(kind schema.GroupKind) bool { return a != nil && a.owned[kind] }

// asking runs a sharded controller with contexts that carry its asker.
type asking struct {
	manager.Runnable
	rota  *rota.Rota
	asker *asker
}

// Start implements manager.Runnable.
func (a asking) Start(ctx context.Context) error {
	ctx = context.WithValue(withAsker(ctx, a.rota, a.asker), startingKey{}, true)
	if err := a.asker.twin.start(ctx); err != nil {
		a.asker.chooser.cannotAsk()
	}
	return a.Runnable.Start(ctx)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (asking) NeedLeaderElection() bool { return false }

// places remembers which kinds were logged for which places in the program.
type places struct{ logged sync.Map }

// first returns the place in the program that called this module. first is true once for each combination of kind,
// place and about.
func (p *places) first(kind schema.GroupKind, about ...string) (place string, first bool) {
	place = caller()
	_, before := p.logged.LoadOrStore(strings.Join(append(about, kind.String(), place), " "), true)
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
