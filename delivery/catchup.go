package delivery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rota-dev/rota/slot"
)

const (
	// catchUpSpread is the longest time by which a member that has many kinds to ask for waits before it does: in a
	// join all that give slots away ask at about the same time.
	catchUpSpread = 250 * time.Millisecond
	// silentPatience is how long CatchUp waits for events of a kind whose API server sends no bookmarks, or refuses
	// requests.
	silentPatience = time.Second
)

// CatchUp returns when the informers of primary kinds that have objects in the slots have seen everything that happened
// before it was called, and their handlers have been told. An owner about to give the slots up thereby learns of every
// deletion that its successor's lists do not show any more. On a kind without traffic it takes seconds, since only a
// bookmark shows it: see Reached. What it has no object of in the slots it cannot miss the deletion of, except that
// handlers may not have been told yet: for those kinds it waits for that, and no more.
//
// A call costs one request per kind with objects in the slots, and two more for such a kind without traffic; calls at
// the same time share them, and a member has no more than a few on their way.
func (s *Share) CatchUp(ctx context.Context, set slot.Set) error {
	var informers, empty []*informer
	for _, inf := range s.active() {
		switch {
		case !inf.role.primary:
		case inf.populates(set):
			informers = append(informers, inf)
		default:
			empty = append(empty, inf)
		}
	}
	errs := make([]error, len(informers)+len(empty))
	var wg sync.WaitGroup
	for n, inf := range empty {
		wg.Go(func() { errs[len(informers)+n] = s.told(ctx, inf) })
	}
	if len(informers) > readers {
		select {
		case <-time.After(rand.N(catchUpSpread)):
		case <-ctx.Done():
		}
	}
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

// told waits until an informer's handlers have heard of all that its store shows. It does not wait for long where
// the kind cannot be listed or watched: nothing may come by then.
func (s *Share) told(ctx context.Context, inf *informer) error {
	src := inf.source
	src.mu.Lock()
	refused := src.ailing[RequestList].err != nil || src.ailing[RequestWatch].err != nil
	src.mu.Unlock()
	if refused {
		limited, cancel := context.WithTimeout(ctx, silentPatience)
		defer cancel()
		ctx = limited
	}
	err := src.served(ctx, src.heard)
	if err != nil && !errors.Is(err, errStopped) {
		return fmt.Errorf("informer of %s: telling its handlers: %w", inf.kind, err)
	}
	return nil
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
