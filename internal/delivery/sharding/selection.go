package sharding

import "cmp"

// Selectors are what a list or a watch of a sharded informer must select by.
type Selectors struct{ Label, Field string }

// Selection is what an informer asks for, whatever its slots: the objects of a namespace that its user's selectors
// select. An empty namespace stands for all.
type Selection struct {
	Namespace string
	Selectors
}

// Compare orders selections.
func (s Selection) Compare(other Selection) int {
	return cmp.Or(cmp.Compare(s.Label, other.Label), cmp.Compare(s.Field, other.Field),
		cmp.Compare(s.Namespace, other.Namespace))
}
