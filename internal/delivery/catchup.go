package delivery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

const (
	// catchUpSpread bounds the random delay before a member asks for the versions of many kinds: when a member joins, all
	// members that give slots away ask at about the same time.
	catchUpSpread = 250 * time.Millisecond
	// refusedPatience is how long CatchUp waits for events of a kind whose lists or watches are refused.
	refusedPatience = time.Second
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
		case !inf.role.Primary:
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
		wg.Go(func() { errs[n] = s.catchUp(ctx, inf, set) })
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
		limited, cancel := context.WithTimeout(ctx, refusedPatience)
		defer cancel()
		ctx = limited
	}
	err := src.served(ctx, src.heard)
	if err != nil && !errors.Is(err, errStopped) {
		return fmt.Errorf("informer of %s: telling its handlers: %w", inf.kind, err)
	}
	return nil
}

func (s *Share) catchUp(ctx context.Context, inf *informer, set slot.Set) error {
	version, err := inf.source.present(ctx)
	if inf.source.answered(err) {
		return nil // no deletion can be missed: the kind is not served
	}
	if err != nil {
		return fmt.Errorf("informer of %s: catching up: %w", inf.kind, err)
	}
	return s.reachOne(ctx, inf, set, version, true)
}

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
			if src.standsStill(set) {
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
	s.mu.Lock()
	limit := max(s.inf.share.patience, s.took)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := s.chase(ctx, slots, version, nudgeAfter, true)
	return err == nil || errors.Is(err, errStopped)
}

// Reached returns when the informers of the kinds have seen everything up to the versions, and their handlers have been
// told. An owner that waits for the versions of its successor's warm lists thereby knows of every deletion that those
// lists do not show. On a kind without traffic it takes about two seconds, since the API server has to be asked for a
// bookmark. The error is ctx's cause, if ctx ends.
func (s *Share) Reached(ctx context.Context, versions table.Versions) error {
	for _, inf := range s.active() {
		version, named := versions[inf.versionKey()]
		if !named {
			continue
		}
		if err := s.reachOne(ctx, inf, s.Held(), version, false); err != nil {
			return err
		}
	}
	return nil
}

func (s *Share) reachOne(ctx context.Context, inf *informer, set slot.Set, version string, read bool) error {
	err := inf.source.reach(ctx, set, version, s.patience, read)
	if err != nil && !errors.Is(err, errStopped) {
		return fmt.Errorf("informer of %s: reaching version %s: %w", inf.kind, version, err)
	}
	return nil
}

// reach returns when the stream and the handlers have passed a version, or if no bookmarks come, when they show what a
// list of the slots shows. read says that the version was read a moment
// ago: a consistent read tells the API server's watch cache the present version, and without it no bookmark shows that
// version.
func (s *source) reach(ctx context.Context, set slot.Set, version string, patience time.Duration, read bool) error {
	err := s.chase(ctx, nil, version, patience, read)
	if errors.Is(err, errNoBookmarks) {
		err = s.listAgain(ctx, set)
	}
	if err != nil {
		return err
	}
	return s.heard(ctx)
}

// chase waits until the stream has reached a version in the slots. If that takes long, it asks for bookmarks: the
// version may be that of an object that this stream does not bring, or of no object. For read see reach.
//
// An API server does not send a bookmark at the version of the kind's latest event if that event lies between the
// watch's start and its present; it sends one at a later version only. So chase reads a version before it asks again:
// then the API server knows of a later one. If no bookmark comes, the error is errNoBookmarks.
func (s *source) chase(ctx context.Context, slots []slot.Slot, version string, patience time.Duration,
	read bool,
) error {
	for asked := false; ; asked, read = true, false {
		soon, cancel := context.WithTimeout(ctx, patience)
		reached := false
		err := s.wait(soon, func() bool {
			reached = s.core.Reached(slots, version)
			return reached || asked && s.bookmarks.absent()
		})
		cancel()
		switch {
		case reached || ctx.Err() != nil || errors.Is(err, errStopped):
			return err
		case s.bookmarks.absent():
			s.nudge() // bookmarks may come again
			return errNoBookmarks
		}
		if !read {
			if _, err := s.present(ctx); err != nil {
				s.inf.share.log.V(1).Info("List failed", "kind", s.inf.kind, "error", err.Error())
			}
		}
		s.nudge()
		patience = nudgeSeconds * time.Second
	}
}

// heard returns when the store holds what was sent to it, and the handlers have been told.
func (s *source) heard(ctx context.Context) error {
	serial, err := s.barrier(ctx, slot.Set{})
	if err != nil {
		return err
	}
	return s.inf.everyoneSaw(ctx, serial)
}

// mayNudge reports whether to ask for a bookmark now: not if somebody has just done so.
func (s *source) mayNudge() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.nudged) >= nudgePeriod {
		s.nudged = now
		return true
	}
	return false
}

// nudge asks the API server for a bookmark, unless somebody has just done so.
func (s *source) nudge() {
	if !s.mayNudge() {
		return
	}
	select {
	case s.nudges <- struct{}{}:
	default:
	}
}

// ShowWritten returns when the informers show what this member wrote in slot n (see Share.Write), deletions included,
// and their handlers have heard of everything in the stores. For kinds that are cached whole it does not wait for
// handlers, and if their cache lags by more than half a minute, that is logged and not waited for. It returns an error
// if ctx ends.
func (s *Share) ShowWritten(ctx context.Context, n slot.Slot) error {
	var set slot.Set
	set.Add(n)
	s.Settle(ctx, set)
	informers := s.active()
	versions := s.Written(set)
	errs := make([]error, len(informers))
	var wg sync.WaitGroup
	for at, inf := range informers {
		wg.Go(func() {
			errs[at] = inf.source.served(ctx, func(ctx context.Context) error {
				version := versions[inf.versionKey()]
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
