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
	// catchUpSpread bounds the random delay before a member asks for the versions of many kinds: when a member joins, all
	// members that give slots away ask at about the same time.
	catchUpSpread = 250 * time.Millisecond
	// silentPatience is how long CatchUp waits for events of a kind whose API server sends no bookmarks or refuses
	// requests.
	silentPatience = time.Second
)

// CatchUp returns when the informers of primary kinds that have objects in the slots have seen everything that happened
// before the call, and their handlers have been told. An owner that is about to give the slots up thereby learns of
// every deletion that its successor's lists cannot show. On a kind without traffic it takes seconds, since only a
// bookmark shows that there was nothing; see Reached. A kind without objects in the slots has no deletion to miss. For
// such a kind CatchUp only waits until the handlers have heard of what the store shows.
//
// A call costs one request per kind with objects in the slots, and two more per such kind without traffic. Concurrent
// calls share the requests, and a member has at most four in flight. Errors name the informer. The error is ctx's cause
// if ctx ends.
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
		wg.Go(func() { errs[len(informers)+n] = s.awaitHandlers(ctx, inf) })
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

// populates reports whether the store has an object in the slots.
func (i *informer) populates(set slot.Set) bool {
	for _, n := range set.Slots() {
		if keys, err := i.GetIndexer().IndexKeys(slotIndex, slotNames[n]); err != nil || len(keys) > 0 {
			return true // an error cannot happen: the index is added before the informer runs
		}
	}
	return false
}

// awaitHandlers waits until an informer's handlers have heard of everything that its store shows. The wait is short if
// the kind cannot be listed or watched: nothing may come then.
func (s *Share) awaitHandlers(ctx context.Context, inf *informer) error {
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
		return nil // no deletion can be missed: the kind is not served
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
