package ctrlrt

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	goruntime "runtime"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

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

// needsLeader reports whether a manager with leader election starts a runnable on the leader only.
func needsLeader(r manager.Runnable) bool {
	switch r := r.(type) {
	case hasCache, webhook.Server:
		return false
	case manager.LeaderElectionRunnable:
		return r.NeedLeaderElection()
	default:
		return true
	}
}

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

// leaderOnly has the names of the runnables that run on the leader only.
type leaderOnly struct {
	mu      sync.Mutex
	names   []string
	started bool
}

// add adds a name. After the manager's start it logs or refuses the name at once.
func (l *leaderOnly) add(m *Manager, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started {
		return m.judgeLeaderOnly(name)
	}
	l.names = append(l.names, name)
	return nil
}

// start logs the names added so far, or refuses them.
func (l *leaderOnly) start(m *Manager) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started = true
	return m.judgeLeaderOnly(l.names...)
}

func (m *Manager) judgeLeaderOnly(names ...string) error {
	switch {
	case len(names) == 0:
		return nil
	case m.options.LeaderElection:
		m.GetLogger().Info("These run on the leader only. Where they fill what reconcilers of sharded controllers read, "+
			"such as a lister or a cache of tokens, "+
			"it is empty on all other members: give such a runnable a method NeedLeaderElection that returns false", "runnables",
			strings.Join(names, ", "))
		return nil
	default:
		return fmt.Errorf("rota %s: these are not sharded and need a leader, but the manager has no leader election, so "+
			"that they would run on every replica at "+
			"once: %s. Make each a duty, which one member at a time does: build a controller with "+
			"ctrlrt.NewDutyControllerManagedBy, and add a runnable with AddDuty of the ctrlrt.Manager; "+m.orElect()+"or shard "+
			"a controller with ctrlrt.NewControllerManagedBy; "+
			"or, for what may run on every replica, set NeedLeaderElection: ptr.To(false) in the controller's options, or give "+
			"the runnable a method "+
			"NeedLeaderElection that returns false", m.rota.Name(), strings.Join(names, ", "))
	}
}
