package judge

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// World is what the checker has to be told of the rota that it judges.
type World struct {
	// Pod returns a member's process by its user; false: not a member.
	Pod func(user string) (string, bool)
	// Slots and Key are the rota's.
	Slots slot.Count
	Key   slot.Key
}

// Site is a Website. Its UID may be unknown where the rota's key is not slot.KeyUID.
type Site struct {
	types.NamespacedName
	UID string
}

func (w World) hash(s Site) uint64 { return w.Key.Hash(s.Namespace, s.Name, s.UID) }

// SlotOf returns the slot of a Website, and of all that it owns.
func (w World) SlotOf(s Site) slot.Slot { return w.Slots.Of(w.hash(s)) }

// label returns the label by which Websites, or else their children, may be delivered, and what its value has to be.
func (w World) label(resource string, s Site) (name, value string) {
	switch kind, ok := kinds[resource]; {
	case !ok:
		return "", ""
	case resource == websites:
		name = sharding.HashLabel(w.Key, kind)
	default:
		name = sharding.OwnerLabel(w.Key, kind)
	}
	return name, sharding.LabelValue(w.hash(s))
}
