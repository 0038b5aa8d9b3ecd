package footprint

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/internal/journal"
)

// createdPrefix begins the names of the Websites that are created to see how soon they are reconciled.
const createdPrefix = "created-"

// reconciles counts the reconciles of the one that it wraps, and notes when each new Website had its first.
type reconciles struct {
	inner reconcile.Reconciler
	count atomic.Int64

	mu    sync.Mutex
	first map[string]time.Duration // by name, by journal.Now, which all processes share
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciles) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if strings.HasPrefix(req.Name, createdPrefix) {
		r.note(req.Name, journal.Now())
	}
	defer r.count.Add(1)
	return r.inner.Reconcile(ctx, req)
}

func (r *reconciles) note(name string, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.first[name]; !ok {
		r.first[name] = now
	}
}

func (r *reconciles) seen() map[string]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.first)
}
