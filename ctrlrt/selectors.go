package ctrlrt

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
)

// A cache evaluates a selector, while a request carries its text. They differ in three ways. A selector that selects
// nothing has the text "", which selects everything in the API server. A field without a name and a value also selects
// everything there, while a cache returns an error. And the API server rejects invalid labels, for which a cache finds
// nothing.

// noLabels reports whether the selector selects no possible labels.
func noLabels(s labels.Selector) bool {
	if s == nil {
		return false
	}
	requirements, selectable := s.Requirements()
	return !selectable || slices.ContainsFunc(requirements, isImpossible)
}

// isImpossible reports whether a requirement has an invalid label. Only requirements for one value can be made without
// validation; see labels.SelectorFromValidatedSet.
func isImpossible(r labels.Requirement) bool {
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		return len(validation.IsQualifiedName(r.Key())) > 0 ||
			!slices.ContainsFunc(r.ValuesUnsorted(), func(v string) bool { return len(validation.IsValidLabelValue(v)) == 0 })
	default:
		return false
	}
}

// noFields reports whether fields.Nothing is in the selector. The requirements do not show it.
func noFields(s fields.Selector) bool {
	if s == nil {
		return false
	}
	rest, err := s.Transform(func(string, string) (string, string, error) { return "", "", nil })
	return err == nil && !rest.Empty()
}

// hasUnnamedField reports whether the selector has a field without a name and a value. The API server ignores such a
// requirement and would return everything.
func hasUnnamedField(s fields.Selector) bool {
	return s != nil && slices.ContainsFunc(s.Requirements(),
		func(r fields.Requirement) bool { return r.Field == "" && r.Value == "" })
}

// andLabels returns the intersection of two selectors. nil selects everything.
func andLabels(a, b labels.Selector) labels.Selector {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	requirements, selectable := b.Requirements()
	if !selectable {
		return b
	}
	return a.Add(requirements...)
}

// andFields returns the intersection of two selectors. nil selects everything.
func andFields(a, b fields.Selector) fields.Selector {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	default:
		return fields.AndSelectors(a, b)
	}
}
