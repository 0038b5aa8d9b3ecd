package delivery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

const (
	// catchUpSpread bounds the random delay before a member asks for the versions of many kinds: when a member joins, all
	// members that give slots away ask at about the same time.
	catchUpSpread = 250 * time.Millisecond
)

// CatchUp returns when the informers of primary kinds that have objects in the slots have seen everything that happened
// before the call, and have notified their handlers. So an owner that is about to give the slots up learns of every
// deletion that its successor's lists cannot show. On a kind without traffic it takes seconds, since only a
// bookmark shows that there was nothing; see Reached. A kind without objects in the slots has no deletion to miss. For
// such a kind CatchUp only waits until the handlers have heard of what the store shows.
//
// A call costs one request per kind with objects in the slots, and two more per such kind without traffic. Concurrent
// calls share the requests, and a member has at most four in flight. Errors name the informer. The error is ctx's cause
// if ctx ends.
func (s *Share) CatchUp(ctx context.Context, set slot.Set) error {
	var informers, empty []*feed.Informer
	for _, inf := range s.Active() {
		switch {
		case !inf.Role.Primary:
		case inf.Populates(set):
			informers = append(informers, inf)
		default:
			empty = append(empty, inf)
		}
	}
	errs := make([]error, len(informers)+len(empty))
	var wg sync.WaitGroup
	for n, inf := range empty {
		wg.Go(func() { errs[len(informers)+n] = inf.Source.TellAll(ctx) })
	}
	if len(informers) > feed.Readers {
		select {
		case <-time.After(rand.N(catchUpSpread)):
		case <-ctx.Done():
		}
	}
	for n, inf := range informers {
		wg.Go(func() { errs[n] = s.catchUp(ctx, inf, set) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *Share) catchUp(ctx context.Context, inf *feed.Informer, set slot.Set) error {
	version, err := inf.Source.Present(ctx)
	if inf.Source.Answered(err) {
		return nil // no deletion can be missed: the kind is not served
	}
	if err != nil {
		return fmt.Errorf("informer of %s: catching up: %w", inf.Kind, err)
	}
	return s.reachOne(ctx, inf, set, version, true)
}

// latest brings slots that are held to the present state (rule R8). Informers follow their streams up to a version that
// is read now. Slots are listed only if that takes longer than a list would.
func (s *Share) latest(ctx context.Context, set slot.Set) error {
	return s.follow(ctx, set, s.Active(), func(inf *feed.Informer) (string, error) { return inf.Source.Present(ctx) })
}

// follow waits until the informers have reached their versions in the slots, and their stores hold everything up to
// those. Kinds that the slots go without are not asked; they are listed as soon as that is possible.
func (s *Share) follow(ctx context.Context, set slot.Set, informers []*feed.Informer,
	version func(*feed.Informer) (string, error),
) error {
	var wg sync.WaitGroup
	for _, inf := range informers {
		wg.Go(func() {
			src := inf.Source
			if src.WithoutAll(set) {
				src.Refresh(set) // a list in flight may be older
				return
			}
			if src.StandsStill(set) {
				return
			}
			v, err := version(inf)
			if src.Answered(err) {
				return // there is nothing of the kind
			}
			all := inf.WithOrphans(set)
			if err != nil || !src.Follow(ctx, all.Slots(), v) {
				src.Refresh(set)
			}
		})
	}
	wg.Wait()
	if err := s.awaitStores(ctx, set, true); err != nil {
		return err
	}
	return s.barrier(ctx, set)
}

// Reached returns when the informers of the kinds have seen everything up to the versions, and have notified their
// handlers. So an owner that waits for the versions of its successor's warm lists learns of every deletion that these
// lists do not show. On a kind without traffic it takes about two seconds, since the API server has to be asked for a
// bookmark. The error is ctx's cause, if ctx ends.
func (s *Share) Reached(ctx context.Context, versions table.Versions) error {
	for _, inf := range s.Active() {
		version, named := versions[inf.VersionKey()]
		if !named {
			continue
		}
		if err := s.reachOne(ctx, inf, s.Held(), version, false); err != nil {
			return err
		}
	}
	return nil
}

func (s *Share) reachOne(ctx context.Context, inf *feed.Informer, set slot.Set, version string, read bool) error {
	err := inf.Source.Reach(ctx, set, version, s.options.Patience, read)
	if err != nil && !errors.Is(err, feed.ErrStopped) {
		return fmt.Errorf("informer of %s: reaching version %s: %w", inf.Kind, version, err)
	}
	return nil
}

// ShowWritten returns when the informers show what this member wrote in slot n (see Share.Write), deletions included,
// and their handlers have heard of everything in the stores. For kinds that are cached whole it does not wait for
// handlers, and if their cache lags by more than half a minute, that is logged and not waited for. It returns an error
// if ctx ends.
func (s *Share) ShowWritten(ctx context.Context, n slot.Slot) error {
	var set slot.Set
	set.Add(n)
	s.Settle(ctx, set)
	informers := s.Active()
	versions := s.Written(set)
	errs := make([]error, len(informers))
	var wg sync.WaitGroup
	for at, inf := range informers {
		wg.Go(func() {
			errs[at] = inf.Source.Served(ctx, func(ctx context.Context) error {
				version := versions[inf.VersionKey()]
				if version == table.List {
					return s.catchUp(ctx, inf, set)
				}
				return s.reachOne(ctx, inf, set, version, false)
			})
		})
	}
	wg.Wait()
	s.reachShared(ctx, versions)
	return errors.Join(errs...)
}
