package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/store"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// Watch collects what a watch emits, until the test ends.
type Watch[T any] struct{ emitted chan T }

// Version is what a watch of the table emits.
type Version struct {
	member.Snapshot
	Listed bool
}

// WatchTable starts a watch of the table.
func WatchTable(t *testing.T, s store.Store) *Watch[Version] {
	return start(t, func(ctx context.Context, emit func(Version)) error {
		return s.WatchTable(ctx, func(s member.Snapshot, listed bool) { emit(Version{s, listed}) })
	})
}

// WatchLeases starts a watch of Leases.
func WatchLeases(t *testing.T, s store.Store, all bool, ids ...string) *Watch[store.Leases] {
	return start(t, func(ctx context.Context, emit func(store.Leases)) error { return s.WatchLeases(ctx, all, ids, emit) })
}

func start[T any](t *testing.T, run func(context.Context, func(T)) error) *Watch[T] {
	ctx, cancel := context.WithCancel(t.Context())
	w := &Watch[T]{emitted: make(chan T, 1024)}
	var done sync.WaitGroup
	done.Go(func() {
		if err := run(ctx, func(v T) { w.emitted <- v }); !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended with %v, want %v", err, context.Canceled)
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return w
}

// Next returns the next emission.
func (w *Watch[T]) Next(t *testing.T) T {
	t.Helper()
	select {
	case v := <-w.emitted:
		return v
	case <-time.After(patience):
		t.Fatalf("the watch emitted nothing within %v", patience)
		panic("unreachable")
	}
}

// Until skips emissions until one matches.
func (w *Watch[T]) Until(t *testing.T, match func(T) bool) T {
	t.Helper()
	for {
		if v := w.Next(t); match(v) {
			return v
		}
	}
}
