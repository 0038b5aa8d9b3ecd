package ctrlrt

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// inFlight are unanswered writes of the manager's clients. Reads that wait for own writes wait for those that began
// before the read. The zero value is empty.
type inFlight struct {
	mu sync.Mutex
	of map[schema.GroupKind]map[*sending]struct{}
}

// sending is a write. done is closed when it is answered.
type sending struct {
	name types.NamespacedName
	done chan struct{}
}

// begin records a write until end is called. The name is empty if the API server chooses the object's name.
func (f *inFlight) begin(kind schema.GroupKind, name types.NamespacedName) (end func()) {
	s := &sending{name, make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[schema.GroupKind]map[*sending]struct{}{}
	}
	if f.of[kind] == nil {
		f.of[kind] = map[*sending]struct{}{}
	}
	f.of[kind][s] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.of[kind], s)
		close(s.done)
	}
}

// await waits until the writes to an object that began before the call are answered. It returns the error of ctx.
func (f *inFlight) await(ctx context.Context, kind schema.GroupKind, name types.NamespacedName) error {
	return f.awaitThose(ctx, kind, func(s *sending) bool { return s.name == name })
}

// awaitAll is await for all objects of a kind.
func (f *inFlight) awaitAll(ctx context.Context, kind schema.GroupKind) error {
	return f.awaitThose(ctx, kind, func(*sending) bool { return true })
}

func (f *inFlight) awaitThose(ctx context.Context, kind schema.GroupKind, which func(*sending) bool) error {
	f.mu.Lock()
	var all []*sending
	for s := range f.of[kind] {
		if which(s) {
			all = append(all, s)
		}
	}
	f.mu.Unlock()
	for _, s := range all {
		select {
		case <-s.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
