package delivery

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// ownedSuffix ends the key in table.Versions of the owned role of a kind that is primary as well. The two roles have
// separate streams, and neither may wait for a version that only the other one carries.
const ownedSuffix = "/owned"

// wholeSuffix ends the key in table.Versions of a kind's informers of NewWholeInformer.
const wholeSuffix = "/whole"

// wholeKey returns the key in table.Versions of an informer that holds all objects.
func (i *informer) wholeKey() string {
	if i.apart {
		return i.kind.String() + wholeSuffix
	}
	return i.kind.String()
}

// versionKey returns the key in table.Versions of a part of a kind's role. s.mu is held.
func (s *Share) versionKey(kind schema.GroupKind, part role) string {
	if part.owners != nil && s.roles[kind].primary {
		return kind.String() + ownedSuffix
	}
	return kind.String()
}

func (i *informer) versionKey() string {
	i.share.mu.Lock()
	defer i.share.mu.Unlock()
	return i.share.versionKey(i.kind, i.role)
}

// Versions returns, per kind, the highest resourceVersion that this member saw or wrote in the slots, deletions
// included (rule R8); for kinds that are cached whole, the highest that it wrote. Settle finds versions for writes
// without one. If it could not, the version is table.List. Kinds without a version are left out. A kind that is primary
// and owned has two keys.
func (s *Share) Versions(set slot.Set) table.Versions {
	out, hashes := s.written(set), s.hashes(set)
	for _, inf := range s.active() {
		all := inf.withOrphans(hashes)
		raise(out, inf.versionKey(), inf.source.highest(all.Slots()))
	}
	return out
}

// written returns the highest versions that this member wrote in the slots; table.List if Settle could not read one.
func (s *Share) written(set slot.Set) table.Versions {
	out := table.Versions{}
	slots := set.Slots()
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, versions := range s.wrote {
		for _, n := range slots {
			if int(n) < len(versions) {
				raise(out, key, versions[n])
			}
		}
	}
	for p, o := range s.owed {
		if o.unread && set.Has(p.slot) {
			raise(out, p.key, table.List)
		}
	}
	return out
}

// raise sets a key's version, unless it has a higher one.
func raise(versions table.Versions, key, version string) {
	if resourceversion.Compare(versions[key], version) < 0 {
		versions[key] = version
	}
}
