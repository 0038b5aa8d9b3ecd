package delivery

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rota-dev/rota/slot"
)

// nudgeAfter is how long a follower waits for an event before it asks the API server for a bookmark.
const nudgeAfter = 100 * time.Millisecond

// latest brings slots that are held to the present state (rule R8). Informers follow their streams up to a version that
// is read now. Slots are listed only if that takes longer than a list would.
func (s *Share) latest(ctx context.Context, set slot.Set) error {
	return s.follow(ctx, set, s.active(), func(src *source) (string, error) { return src.present(ctx) })
}

// follow waits until the informers have reached their versions in the slots, and their stores hold everything up to
// those. Kinds that the slots go without are not asked; they are listed as soon as that is possible.
func (s *Share) follow(ctx context.Context, set slot.Set, informers []*informer,
	version func(*source) (string, error),
) error {
	var wg sync.WaitGroup
	for _, inf := range informers {
		wg.Go(func() {
			src := inf.source
			if src.withoutAll(set) {
				src.refresh(set) // a list in flight may be older
				return
			}
			v, err := version(src)
			if src.answered(err) {
				return // there is nothing of the kind
			}
			all := inf.withOrphans(set)
			if err != nil || !src.follow(ctx, all.Slots(), v) {
				src.refresh(set)
			}
		})
	}
	wg.Wait()
	if err := s.awaitStores(ctx, set, true); err != nil {
		return err
	}
	return s.barrier(ctx, set)
}

// follow waits until the stream has reached a version in the slots, for about as long as a list of slots takes.
func (s *source) follow(ctx context.Context, slots []slot.Slot, version string) bool {
	limit := s.inf.share.patience
	if !s.silent.Load() {
		s.mu.Lock()
		limit = max(limit, s.took)
		s.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := s.chase(ctx, slots, version, nudgeAfter, true)
	return err == nil || errors.Is(err, errStopped)
}
