package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/slot"
)

// nudgeAfter is how long a follower waits for an event before it asks the API server for a bookmark.
const nudgeAfter = 100 * time.Millisecond

// refusedPatience is how long CatchUp waits for events of a kind whose lists or watches are refused.
const refusedPatience = time.Second

// Follow waits until the stream has reached a version in the slots, for about as long as a list of slots takes.
func (s *Source) Follow(ctx context.Context, slots []slot.Slot, version string) bool {
	ctx, cancel := context.WithTimeout(ctx, max(s.inf.share.options.Patience, time.Duration(s.took.Load())))
	defer cancel()
	err := s.chase(ctx, slots, version, nudgeAfter, true)
	return err == nil || errors.Is(err, ErrStopped)
}

// Reach returns when the stream and the handlers have passed a version, or if no bookmarks come, when they show what a
// list of the slots shows. read is true if the version was read a moment ago: a consistent read shows the API server's
// watch cache the present version, and without it no bookmark shows that version.
func (s *Source) Reach(ctx context.Context, set slot.Set, version string, patience time.Duration, read bool) error {
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
// version may belong to an object that this stream does not bring, or to none. For read see Reach.
//
// An API server does not send a bookmark at the version of the kind's latest event if that event lies between the
// watch's start and its present; it sends one at a later version only. So chase reads a version before it asks again:
// then the API server has seen a later one. If no bookmark comes, the error is errNoBookmarks.
func (s *Source) chase(ctx context.Context, slots []slot.Slot, version string, patience time.Duration,
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
		case reached || ctx.Err() != nil || errors.Is(err, ErrStopped):
			return err
		case s.bookmarks.absent():
			s.nudge() // bookmarks may come again
			return errNoBookmarks
		}
		if !read {
			if _, err := s.Present(ctx); err != nil {
				s.inf.share.Log.V(1).Info("List failed", "kind", s.inf.Kind, "error", err.Error())
			}
		}
		s.nudge()
		patience = nudgeSeconds * time.Second
	}
}

// heard returns when the store holds what was sent to it, and the handlers have been called.
func (s *Source) heard(ctx context.Context) error {
	serial, err := s.barrier(ctx, slot.Set{})
	if err != nil {
		return err
	}
	return s.inf.everyoneSaw(ctx, serial, s.done)
}

// TellAll waits until the handlers have heard of everything that the store shows. The wait is short if the kind cannot
// be listed or watched: nothing may come then.
func (s *Source) TellAll(ctx context.Context) error {
	if s.failure(RequestList).err != nil || s.failure(RequestWatch).err != nil {
		limited, cancel := context.WithTimeout(ctx, refusedPatience)
		defer cancel()
		ctx = limited
	}
	err := s.Served(ctx, s.heard)
	if err != nil && !errors.Is(err, ErrStopped) {
		return fmt.Errorf("informer of %s: telling its handlers: %w", s.inf.Kind, err)
	}
	return nil
}

// Wake makes the driver check for work.
func (s *Source) Wake() { s.kick.raise() }

// Refresh requests a new list of the slots' objects, one that starts after this call.
func (s *Source) Refresh(set slot.Set) {
	if set.Empty() {
		return
	}
	s.Renew(set)
	s.kick.raise()
}

// AwaitSlots waits until the store holds the slots. final is true if the slots are this member's even if it lacks
// kinds. begun is when the wait for all informers began. lacks is true if some slots are opened without the kind, and
// released is true if some are no longer held.
func (s *Source) AwaitSlots(ctx context.Context, set slot.Set, final bool, begun time.Time) (
	lacks, released bool, err error,
) {
	all, missing := s.inf.WithOrphans(set), slot.Set{}
	slots := all.Slots()
	err = s.wait(ctx, func() bool {
		held := s.inf.share.Held()
		missing = slot.Set{}
		for _, n := range slots {
			switch {
			case set.Has(n) && !held.Has(n):
				released = true
				return true
			case s.complete(n) && (final || !s.isCached(n) || s.ownerLeaves(n, set)):
			case s.goesWithout(n), s.excused(begun) && (final || s.hasListed && s.ownerLeaves(n, set)):
				missing.Add(n)
			default:
				return false
			}
		}
		s.goWithout(missing)
		return true
	})
	return !missing.Empty(), released, err
}

// A bookmark shows that a watch has passed a version although no event came. A proxy before the API server may drop
// bookmarks. A wait for a version that no event has then lists the slots instead, which proves the same.

// bookmarks asks for bookmarks in an informer's watch, and notes whether they come.
type bookmarks struct {
	missing atomic.Int32 // how many were asked for and did not come since the last one that came
	nudges  signal       // the pump should provoke one
	mu      sync.Mutex
	nudged  time.Time // when one was asked for
	asked   time.Time // when a read asked for one
}

// nudge asks the API server for a bookmark, unless that was just done.
func (b *bookmarks) nudge() {
	b.mu.Lock()
	now := time.Now()
	may := now.Sub(b.nudged) >= nudgePeriod
	if may {
		b.nudged = now
	}
	b.mu.Unlock()
	if may {
		b.nudges.raise()
	}
}

// askForRead returns 0 if a read may ask for a bookmark now, and notes that it does; or else the time until one may.
func (b *bookmarks) askForRead(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if wait := b.asked.Add(readRespite).Sub(now); wait > 0 {
		return wait
	}
	b.asked = now
	return 0
}

// absent reports whether no bookmark came when one was asked for.
func (b *bookmarks) absent() bool { return b.missing.Load() > 0 }

// dropped reports whether none came twice. Once may be by chance: see chase.
func (b *bookmarks) dropped() bool { return b.missing.Load() > 1 }

// errNoBookmarks is returned if a version can be reached only by a list.
var errNoBookmarks = errors.New("no bookmarks come")

// noBookmark notes that a watch that was opened for a bookmark ended without one. After the first time it asks again,
// to be sure.
func (s *Source) noBookmark() {
	n := s.bookmarks.missing.Add(1)
	switch n {
	case 1:
		go func() {
			ctx, cancel := s.whileRunning(readTimeout)
			defer cancel()
			if _, err := s.Present(ctx); err == nil {
				s.nudge()
			}
		}()
	case 2:
		s.inf.share.Log.Info("The API server, or a proxy before it, sends no bookmarks in watches of this kind, so that "+
			"moves of slots cost a list of the kind each. If a proxy drops them, have it pass watches on as they are",
			"kind", s.inf.Kind.String())
	}
	s.look()
}

// bookmarked notes that a bookmark came.
func (s *Source) bookmarked() {
	if s.bookmarks.missing.Load() > 0 && s.bookmarks.missing.Swap(0) > 1 {
		s.inf.share.Log.Info("Bookmarks come again in watches of this kind", "kind", s.inf.Kind.String())
	}
}

// listAgain returns when the stores and handlers show what a list of the slots shows that begins now, deletions
// included.
func (s *Source) listAgain(ctx context.Context, set slot.Set) error {
	return s.Served(ctx, func(ctx context.Context) error {
		s.Refresh(set)
		slots := set.Slots()
		return s.wait(ctx, func() bool {
			return !slices.ContainsFunc(slots, func(n slot.Slot) bool { return s.inf.share.Holds(n) && !s.complete(n) })
		})
	})
}
