package ctrlrt

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
)

// A cache evaluates a selector, a request carries its text. They differ in three ways. The text of a selector that
// selects nothing is "", which the API server takes for everything. It also takes a field without a name and a value
// for everything, where a cache says that there is no such index. And the API server refuses labels that no object can
// have, by which a cache finds nothing.

// noLabels reports whether no object can have labels that the selector selects.
func noLabels(s labels.Selector) bool {
	if s == nil {
		return false
	}
	requirements, selectable := s.Requirements()
	return !selectable || slices.ContainsFunc(requirements, isImpossible)
}

// isImpossible reports whether a requirement asks for a label that the API server would not store. Only requirements
// for one value are made without a validation: see labels.SelectorFromValidatedSet.
func isImpossible(r labels.Requirement) bool {
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		return len(validation.IsQualifiedName(r.Key())) > 0 ||
			!slices.ContainsFunc(r.ValuesUnsorted(), func(v string) bool { return len(validation.IsValidLabelValue(v)) == 0 })
	default:
		return false
	}
}

// noFields reports whether fields.Nothing is in the selector. It is in no requirement.
func noFields(s fields.Selector) bool {
	if s == nil {
		return false
	}
	rest, err := s.Transform(func(string, string) (string, string, error) { return "", "", nil })
	return err == nil && !rest.Empty()
}

// hasUnnamedField reports whether the selector has a field without a name and a value. The API server takes the text of
// such a requirement for nothing to select by, and would return everything.
func hasUnnamedField(s fields.Selector) bool {
	return s != nil && slices.ContainsFunc(s.Requirements(),
		func(r fields.Requirement) bool { return r.Field == "" && r.Value == "" })
}

// andLabels returns the selector of what both select; nil selects everything.
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

// andFields returns the selector of what both select; nil selects everything.
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
