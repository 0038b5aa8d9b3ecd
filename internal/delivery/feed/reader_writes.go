package feed

import (
	"context"
	"slices"

	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// noteShown notes that the informer shows writes that it was past before its store settled.
func (r *Reader) noteShown(past []*ledger.Unshown) {
	var caches []any
	for _, inf := range r.share.running(r.Kind) {
		caches = append(caches, inf)
	}
	for _, w := range past {
		if !r.hasGone(w) {
			r.share.Reads.Shown(w, r.Informer, caches)
		}
	}
}

// past returns the writes that are not known to be shown although everything of them has been sent to the store.
func (r *Reader) past(writes []*ledger.Unshown) []*ledger.Unshown {
	return slices.DeleteFunc(slices.Clone(writes),
		func(w *ledger.Unshown) bool { return w.Blind || w.IsShown(r.Informer) || !r.isPast(w) })
}

// Settled returns when the store holds what was sent to it before the call.
func (r *Reader) Settled(ctx context.Context) error {
	_, err := r.Source.barrier(ctx, slot.Set{})
	return err
}

// isPast reports whether everything that the informer shows of a write has been sent to its store.
func (r *Reader) isPast(w *ledger.Unshown) bool {
	if !r.Sharded {
		return resourceversion.Compare(r.Whole.atMost(), w.Version) >= 0
	}
	places := r.placesOf(w)
	return !slices.ContainsFunc(places, func(n slot.Slot) bool {
		return r.share.Holds(n) && !r.Source.reached(n, w.Version)
	})
}

// placesOf returns the slots in which the object of a write counts for the informer.
func (r *Reader) placesOf(w *ledger.Unshown) []slot.Slot {
	var out []slot.Slot
	key := r.VersionKey()
	for _, p := range w.Places {
		if p.Key == key {
			out = append(out, p.Slot)
		}
	}
	return out
}

// hasGone reports whether the store has an object that was deleted.
func (r *Reader) hasGone(w *ledger.Unshown) bool {
	if w.Gone == "" {
		return false
	}
	about := r.stored(w.Name)
	return about != nil && about.GetUID() == w.Gone
}

// holds reports whether the store has the object as it was written, or later.
func (r *Reader) holds(w *ledger.Unshown) bool {
	if w.Gone != "" || w.Blind {
		return false
	}
	about := r.stored(w.Name)
	return about != nil && resourceversion.Compare(about.GetResourceVersion(), w.Version) >= 0
}
