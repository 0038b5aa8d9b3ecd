package labeller

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxFixes bounds the queue of Fix.
const maxFixes = 4096

// fixes is a queue without duplicates.
type fixes struct {
	mu     sync.Mutex
	queued map[target]struct{}
	wake   chan struct{}
}

// Fix queues an object whose label may be wrong; Run rewrites a wrong label, on this member. Fix does not call
// Options.Permit, because a mislabeled object reaches the member that its wrong value selects, not the one that labels.
// It never blocks. It returns false if 4,096 objects are waiting; the scan will find the object then.
func (l *Labeller) Fix(resource schema.GroupVersionResource, obj metav1.Object) bool {
	t, wrong := l.targetOf(resource, obj)
	if !wrong {
		return true
	}
	f := &l.fixes
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.queued[t]; known {
		return true
	}
	if len(f.queued) >= maxFixes {
		l.stats.refused.Add(1)
		return false
	}
	f.queued[t] = struct{}{}
	select {
	case f.wake <- struct{}{}:
	default:
	}
	return true
}

// next removes and returns a batch, in any order.
func (f *fixes) next() []target {
	f.mu.Lock()
	defer f.mu.Unlock()
	var batch []target
	for t := range f.queued {
		if len(batch) == batchSize {
			break
		}
		batch = append(batch, t)
		delete(f.queued, t)
	}
	return batch
}

func (l *Labeller) fixLoop(ctx context.Context) {
	always := func(ctx context.Context) (context.Context, func(), bool) { return ctx, func() {}, true }
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.fixes.wake:
		}
		for batch := l.fixes.next(); len(batch) > 0 && ctx.Err() == nil; batch = l.fixes.next() {
			l.patchAll(ctx, batch, always)
		}
	}
}
