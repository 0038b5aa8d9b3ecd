package feed

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

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

// Bookmarkless returns the sharded kinds in whose watches no bookmarks come, in order.
func (s *Reports) Bookmarkless() (out []schema.GroupKind) {
	for _, inf := range s.Active() {
		if inf.Source.bookmarks.dropped() && !slices.Contains(out, inf.Kind) {
			out = append(out, inf.Kind)
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return out
}
