package ctrlrt

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	goruntime "runtime"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rota-dev/rota/internal/upstream/controllerruntime"
)

// cached is a cache that the manager starts with its own caches.
type cached struct{ cache.Cache }

// GetCache marks the runnable as one with a cache for controller-runtime's manager.
func (c cached) GetCache() cache.Cache { return c.Cache }

// Add adds a runnable. Caches, clusters and other runnables with a cache run on every member and start before any
// controller, since reconcilers of every member read from them. controller-runtime would start a cache with
// Options.ByObject on the leader only.
//
// A runnable that needs a leader is refused if the manager has no leader election, since it would run on every replica.
// Start returns an error for runnables that were added before it, and Add for later ones.
func (m *Manager) Add(r manager.Runnable) error {
	if c, ok := r.(cache.Cache); ok {
		if _, ok := r.(hasCache); !ok {
			r = cached{c}
		}
	}
	a, sharded := r.(asking)
	if !sharded && (needsLeader(r) || controllerruntime.IsController(r)) {
		m.kinds.addUnsharded(describe(r))
	}
	switch {
	case sharded:
		m.declared.add(a.Runnable, fmt.Sprintf("controller %q", a.asker.controller), adviceSource)
	case controllerruntime.IsController(r):
		m.declared.add(r, describe(r), adviceUnsharded)
	}
	if needsLeader(r) {
		if err := m.leaderOnly.add(m, describe(r)); err != nil {
			return err
		}
	}
	if controllerruntime.IsController(r) {
		r = starting{r}
	}
	return m.inner.Add(r)
}

// starting starts a controller with contexts for which ofController returns true.
type starting struct{ manager.Runnable }

type startingKey struct{}

// ofController reports whether a context belongs to a controller's sources and their handlers, and not to a reconcile.
// The controller may be unsharded, or of another manager in this process, for sources of several clusters.
func ofController(ctx context.Context) bool {
	controllers := ctx.Value(startingKey{}) != nil || ctx.Value(registrationsKey{}) != nil
	return controllers && controller.ReconcileIDFromContext(ctx) == ""
}

// Start implements manager.Runnable.
func (s starting) Start(ctx context.Context) error {
	return s.Runnable.Start(context.WithValue(ctx, startingKey{}, true))
}

// Warmup starts the sources of a controller with EnableWarmup before the manager is the leader.
func (s starting) Warmup(ctx context.Context) error {
	if c, ok := s.Runnable.(interface{ Warmup(context.Context) error }); ok {
		return c.Warmup(context.WithValue(ctx, startingKey{}, true))
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (s starting) NeedLeaderElection() bool { return needsLeader(s.Runnable) }

type hasCache interface{ GetCache() cache.Cache }

// describe names a runnable: a controller by its name, a function by its place in the source.
func describe(r manager.Runnable) string {
	if name, ok := controllerruntime.ControllerName(r); ok {
		return fmt.Sprintf("controller %q", name)
	}
	if v := reflect.ValueOf(r); v.Kind() == reflect.Func && !v.IsNil() {
		f := goruntime.FuncForPC(v.Pointer())
		file, line := f.FileLine(f.Entry())
		return fmt.Sprintf("runnable %T %s (%s:%d)", r, f.Name(), filepath.Base(file), line)
	}
	return fmt.Sprintf("runnable %T", r)
}
