package feed

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/delivery/sharding"
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

// selected is what an informer's user selects, parsed: a read that waits looks again and again.
type selected struct {
	of *sharding.Selection
	// label and field are nil if they cannot be parsed.
	label labels.Selector
	field fields.Selector
}

func parseSelection(of *sharding.Selection) *selected {
	s := &selected{of: of}
	if label, err := labels.Parse(of.Label); err == nil {
		s.label = label
	}
	if field, err := fields.ParseSelector(of.Field); err == nil {
		s.field = field
	}
	return s
}

// selection returns what the informer's user selects, or nil if it is not known yet.
func (r *Reader) selection() *selected {
	asked := r.Source.upstream.asked.Load()
	if asked == nil {
		return nil
	}
	last := r.selected.Load()
	if last == nil || last.of != asked {
		last = parseSelection(asked)
		r.selected.Store(last)
	}
	return last
}

// willShow reports whether the informer will show a write, or does so.
func (r *Reader) willShow(w *ledger.Unshown) bool {
	if r.Sharded && !r.isAwaitedAnywhere(w) {
		return false
	}
	by := r.selection()
	return by == nil || by.selects(w) ||
		by.in(w.Name.Namespace) && r.stored(w.Name) != nil
}

// in reports whether objects in a namespace are selected.
func (s *selected) in(namespace string) bool {
	return s.of.Namespace == "" || s.of.Namespace == namespace
}

// selects reports whether the object of a write may be selected, as it was by one of its writes.
func (s *selected) selects(w *ledger.Unshown) bool {
	if !s.in(w.Name.Namespace) {
		return false
	}
	if s.field != nil {
		about := fields.Set{"metadata.name": w.Name.Name, "metadata.namespace": w.Name.Namespace}
		for _, r := range s.field.Requirements() {
			if one := fields.OneTermEqualSelector(r.Field, r.Value); about.Has(r.Field) &&
				one.Matches(about) != (r.Operator != "!=") {
				return false
			}
		}
	}
	return s.label == nil || w.Labels == nil ||
		slices.ContainsFunc(w.Labels, func(l labels.Set) bool { return s.label.Matches(l) })
}
