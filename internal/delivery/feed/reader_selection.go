package feed

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/delivery/sharding"
)

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
