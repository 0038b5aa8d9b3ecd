package delivery

import (
	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Versions returns, per kind, the highest resourceVersion that this member saw or wrote in the slots, deletions
// included (rule R8); for kinds that are cached whole, the highest that it wrote. Settle finds versions for writes
// without one. If it could not, the version is table.List. Kinds without a version are left out. A kind that is primary
// and owned has two keys.
func (s *Share) Versions(set slot.Set) table.Versions {
	out := s.Written(set)
	hashes := s.hashes(set)
	for _, inf := range s.Active() {
		all := inf.WithOrphans(hashes)
		ledger.Raise(out, inf.VersionKey(), inf.Source.Highest(all.Slots()))
	}
	return out
}
