package delivery

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

// Fits returns an error where the kind of delivery does not go with the key.
func (k Kind) Fits(key slot.Key) error {
	_, err := newScope(k, key, slot.DefaultCount)
	return err
}

// Kinds returns the kinds that are declared as primary or owned, in order.
func (s *Share) Kinds() []schema.GroupKind {
	s.mu.Lock()
	defer s.mu.Unlock()
	kinds := make([]schema.GroupKind, 0, len(s.roles))
	for kind := range s.roles {
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return kinds
}

// Delivery returns how objects of sharded kinds are delivered.
func (s *Share) Delivery() Kind {
	switch s.scope.(type) {
	case labelScope:
		return SlotLabel
	case shardScope:
		return ShardSelector
	default:
		return Filter
	}
}
