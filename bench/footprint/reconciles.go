package footprint

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/test/journal"
)

// createdPrefix is the prefix of the names of Websites that are created to measure latencies.
const createdPrefix = "created-"

// reconciles counts the reconciles of another reconciler, and notes the first one of each new Website.
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
