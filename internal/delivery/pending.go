package delivery

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// forgetShown forgets the writes of a kind that all its informers show. Reads forget what they have waited for; this is
// for what nobody reads.
func (s *Share) forgetShown(kind schema.GroupKind) {
	defer s.Reads.Swept(kind)
	ctx := context.Background() // what is called ends with the informer
	for _, inf := range s.running(kind) {
		writes, err := inf.prove(ctx, s.Reads.In(kind, ""), func() bool { return false })
		if err != nil {
			continue
		}
		if past := inf.past(writes); len(past) > 0 && (!inf.sharded || inf.settled(ctx) == nil) {
			inf.noteShown(past)
		}
	}
}

// running returns the informers of a kind that run.
func (s *Share) running(kind schema.GroupKind) []*informer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Concat(s.informers, s.besides),
		func(i *informer) bool { return i.kind != kind || !i.running })
}

// noteShown notes that the informer shows writes that it was past before its store settled.
func (i *informer) noteShown(past []*ledger.Unshown) {
	var caches []any
	for _, inf := range i.share.running(i.kind) {
		caches = append(caches, inf)
	}
	for _, w := range past {
		if !i.hasGone(w) {
			i.share.Reads.Shown(w, i, caches)
		}
	}
}

// past returns the writes that are not known to be shown although everything of them has been sent to the store.
func (i *informer) past(writes []*ledger.Unshown) []*ledger.Unshown {
	return slices.DeleteFunc(slices.Clone(writes),
		func(w *ledger.Unshown) bool { return w.Blind || w.IsShown(i) || !i.isPast(w) })
}

// settled returns when the store holds what was sent to it before the call.
func (i *informer) settled(ctx context.Context) error {
	_, err := i.source.barrier(ctx, slot.Set{})
	return err
}

// isPast reports whether everything that the informer shows of a write has been sent to its store.
func (i *informer) isPast(w *ledger.Unshown) bool {
	if !i.sharded {
		return resourceversion.Compare(i.Version(), w.Version) >= 0
	}
	places := i.placesOf(w)
	i.source.mu.Lock()
	defer i.source.mu.Unlock()
	return !slices.ContainsFunc(places, func(n slot.Slot) bool {
		return i.share.Holds(n) && !i.source.core.Reached([]slot.Slot{n}, w.Version)
	})
}

// placesOf returns the slots in which the object of a write counts for the informer.
func (i *informer) placesOf(w *ledger.Unshown) []slot.Slot {
	var out []slot.Slot
	key := i.versionKey()
	for _, p := range w.Places {
		if p.Key == key {
			out = append(out, p.Slot)
		}
	}
	return out
}

// hasGone reports whether the store has an object that was deleted.
func (i *informer) hasGone(w *ledger.Unshown) bool {
	if w.Gone == "" {
		return false
	}
	about := i.stored(w.Name)
	return about != nil && about.GetUID() == w.Gone
}

// holds reports whether the store has the object as it was written, or later.
func (i *informer) holds(w *ledger.Unshown) bool {
	if w.Gone != "" || w.Blind {
		return false
	}
	about := i.stored(w.Name)
	return about != nil && resourceversion.Compare(about.GetResourceVersion(), w.Version) >= 0
}
