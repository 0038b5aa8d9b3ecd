package ledger

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// Place is a slot of a kind's role. Key is the role's key in table.Versions.
type Place struct {
	Key  string
	Slot slot.Slot
}

const (
	// ownedSuffix ends the key of the owned role of a kind that is primary as well. The two roles have separate streams,
	// and neither may wait for a version that only the other one carries.
	ownedSuffix = "/owned"
	// wholeSuffix ends the key of a kind's informers of NewWholeInformer.
	wholeSuffix = "/whole"
)

// Key returns the key in table.Versions of a part of a kind's role.
func Key(kind schema.GroupKind, of, part sharding.Role) string {
	if part.Owned() && of.Primary {
		return kind.String() + ownedSuffix
	}
	return kind.String()
}

// WholeKey returns the key in table.Versions of a kind's informers of NewWholeInformer.
func WholeKey(kind schema.GroupKind) string { return kind.String() + wholeSuffix }

// Raise sets a key's version, unless it has a higher one.
func Raise(versions table.Versions, key, version string) {
	if resourceversion.Compare(versions[key], version) < 0 {
		versions[key] = version
	}
}

func distinct(places []Place) []Place {
	var out []Place
	for _, p := range places {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}
