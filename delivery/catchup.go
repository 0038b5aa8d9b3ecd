package delivery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/slot"
)

const (
	// catchUpSpread is the longest time by which a member that has many kinds to ask for waits before it does: in a
	// join all that give slots away ask at about the same time.
	catchUpSpread = 250 * time.Millisecond
	// silentPatience is how long CatchUp waits for events of a kind whose API server sends no bookmarks.
	silentPatience = time.Second
)

// CatchUp returns when the informers of primary kinds that have objects in the slots have seen everything that happened
// before it was called, and their handlers have been told. An owner about to give the slots up thereby learns of every
// deletion that its successor's lists do not show any more. What it has no object of in the slots it cannot miss the
// deletion of. On a kind without traffic it takes seconds, since only a bookmark shows it: see Reached.
//
// A call costs one request per kind, and two more for a kind without traffic; calls at the same time share them, and a
// member has no more than a few on their way.
func (s *Share) CatchUp(ctx context.Context, set slot.Set) error {
	informers := slices.DeleteFunc(s.active(), func(i *informer) bool { return !i.role.primary || !i.populates(set) })
	if len(informers) > readers {
		select {
		case <-time.After(rand.N(catchUpSpread)):
		case <-ctx.Done():
		}
	}
	errs := make([]error, len(informers))
	var wg sync.WaitGroup
	for n, inf := range informers {
		wg.Go(func() { errs[n] = s.catchUp(ctx, inf) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// populates says whether the store has an object in the slots.
func (i *informer) populates(set slot.Set) bool {
	for _, n := range set.Slots() {
		if keys, err := i.GetIndexer().IndexKeys(slotIndex, slotNames[n]); err != nil || len(keys) > 0 {
			return true // the index is added before the informer runs
		}
	}
	return false
}

func (s *Share) catchUp(ctx context.Context, inf *informer) error {
	version, err := inf.source.present(ctx)
	if inf.source.answered(err) {
		return nil // there is nothing left of which a deletion could be missed
	}
	if err != nil {
		return fmt.Errorf("informer of %s: catching up: %w", inf.kind, err)
	}
	if inf.source.silent.Load() {
		limited, cancel := context.WithTimeout(ctx, silentPatience)
		defer cancel()
		ctx = limited
	}
	return s.reachOne(ctx, inf, version, true)
}
