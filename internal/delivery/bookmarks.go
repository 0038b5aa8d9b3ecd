package delivery

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

// A bookmark shows that a watch has passed a version although no event came. A proxy before the API server may drop
// bookmarks. Whoever waits for a version that no event has then lists the slots instead, which proves the same.

// bookmarks counts the bookmarks that were asked for and did not come since the last one that came.
type bookmarks struct{ missing atomic.Int32 }

// absent reports whether no bookmark came when one was asked for.
func (b *bookmarks) absent() bool { return b.missing.Load() > 0 }

// dropped reports whether none came twice. Once may be by chance: see chase.
func (b *bookmarks) dropped() bool { return b.missing.Load() > 1 }

// errNoBookmarks says that a version can be reached only by a list.
var errNoBookmarks = errors.New("no bookmarks come")

// noBookmark notes that a watch that was opened for a bookmark ended without one. After the first time it asks again,
// to be sure.
func (s *source) noBookmark() {
	n := s.bookmarks.missing.Add(1)
	switch n {
	case 1:
		go func() {
			ctx, cancel := s.whileRunning(readTimeout)
			defer cancel()
			if _, err := s.present(ctx); err == nil {
				s.nudge()
			}
		}()
	case 2:
		s.inf.share.log.Info("The API server, or a proxy before it, sends no bookmarks in watches of this kind, so that "+
			"moves of slots cost a list of the kind each. If a proxy drops them, have it pass watches on as they are",
			"kind", s.inf.kind.String())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed()
}

// bookmarked notes that a bookmark came.
func (s *source) bookmarked() {
	if s.bookmarks.missing.Load() > 0 && s.bookmarks.missing.Swap(0) > 1 {
		s.inf.share.log.Info("Bookmarks come again in watches of this kind", "kind", s.inf.kind.String())
	}
}

// listAgain returns when the stores and handlers show what a list of the slots shows that begins now, deletions
// included.
func (s *source) listAgain(ctx context.Context, set slot.Set) error {
	return s.served(ctx, func(ctx context.Context) error {
		s.refresh(set)
		slots := set.Slots()
		return s.wait(ctx, func() bool {
			return !slices.ContainsFunc(slots, func(n slot.Slot) bool { return s.inf.share.Holds(n) && !s.complete(n) })
		})
	})
}

// Bookmarkless returns the sharded kinds in whose watches no bookmarks come, in order.
func (s *Share) Bookmarkless() (out []schema.GroupKind) {
	for _, inf := range s.active() {
		if inf.source.bookmarks.dropped() && !slices.Contains(out, inf.kind) {
			out = append(out, inf.kind)
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return out
}
