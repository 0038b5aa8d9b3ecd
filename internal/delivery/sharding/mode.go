package sharding

import (
	"encoding"
	"fmt"
	"strings"

	"github.com/rota-dev/rota/slot"
)

// Mode is how the objects of the slots reach the member.
type Mode uint8

const (
	// ModeUnknown is the zero value; Options take it for Filter.
	ModeUnknown Mode = iota
	// Filter receives all objects of a kind and keeps its own. It works with any API server and any key.
	Filter
	// SlotLabel asks for the objects whose label (Roles.Stamp) says that they are in the slots. That label has to be
	// written once in an object's life. It works with any API server and with the keys Name and Namespace.
	SlotLabel
	// ShardSelector has the API server select by the hash of metadata.uid. It needs Kubernetes 1.36 or later with the
	// feature gate ShardedListAndWatch, and key UID. If the server ignores the selector, it works as Filter; see
	// delivery.Share.Traffic.
	ShardSelector
)

// String returns the mode's name.
func (m Mode) String() string {
	switch m {
	case Filter:
		return "Filter"
	case SlotLabel:
		return "SlotLabel"
	case ShardSelector:
		return "ShardSelector"
	default:
		return "Unknown"
	}
}

// Fits returns an error if the mode of delivery does not work with the key.
func (m Mode) Fits(key slot.Key) error {
	switch {
	case m > ShardSelector:
		return fmt.Errorf("delivery kind %d: must be %s, %s or %s", m, Filter, SlotLabel, ShardSelector)
	case m == SlotLabel && key == slot.KeyUID:
		return fmt.Errorf("delivery SlotLabel with key %s: a label is written before the UID is known to its writers; "+
			"use key %s or %s, or delivery ShardSelector", key, slot.KeyName, slot.KeyNamespace)
	case m == ShardSelector && key != slot.KeyUID:
		return fmt.Errorf("delivery ShardSelector with key %s: the API server hashes UIDs; use key %s, or delivery SlotLabel",
			key, slot.KeyUID)
	default:
		return nil
	}
}

// ParseMode is the inverse of String. It ignores case and hyphens, so that it takes slot-label.
func ParseMode(text string) (Mode, error) {
	plain := strings.ReplaceAll(text, "-", "")
	for m := Filter; m <= ShardSelector; m++ {
		if strings.EqualFold(plain, m.String()) {
			return m, nil
		}
	}
	return ModeUnknown, fmt.Errorf("delivery %q: must be one of filter, slot-label, shard-selector", text)
}

// MarshalText implements encoding.TextMarshaler; ModeUnknown is the empty text.
func (m Mode) MarshalText() ([]byte, error) {
	if m == ModeUnknown {
		return nil, nil
	}
	return []byte(m.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler with ParseMode, so that flag.TextVar takes a *Mode.
func (m *Mode) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 {
		*m = ModeUnknown
		return nil
	}
	*m, err = ParseMode(string(text))
	return err
}

var (
	_ encoding.TextMarshaler   = ModeUnknown
	_ encoding.TextUnmarshaler = (*Mode)(nil)
)
