package member

import (
	"slices"
	"strings"
)

// Clause names a clause of the protocol that looks as if it could be left out. Tests leave each of them out, to
// show what it prevents; nothing else may.
type Clause uint32

// Clauses, by the rule of docs/protocol.md that holds them.
const (
	// ClauseGapCounts (R1): a gap of the observer's own counts for a quarter of a lease, instead of restarting waits.
	ClauseGapCounts Clause = 1 << iota
	// ClauseGapCapped (R1): a gap of the observer's own counts for no more than a quarter of a lease.
	ClauseGapCapped
	// ClauseMissingRestarts (R1): the first sight of a missing Lease restarts the wait.
	ClauseMissingRestarts
	// ClauseMissingCounts (R1): from then on a missing Lease counts as unchanged.
	ClauseMissingCounts
	// ClauseLivePlanners (R3): planners are chosen among those not held dead.
	ClauseLivePlanners
	// ClauseOpenEpoch (R5): a slot is open only at the epoch for which it was activated.
	ClauseOpenEpoch
	// ClauseOpenConfirmed (R5): a gate opens only after a read of the table that began when the Lease said "open".
	ClauseOpenConfirmed
	// ClauseFenceFirst (R6): a slot is not handed over before its own fence wait is over.
	ClauseFenceFirst
	// ClauseShutOnceSent (R6): from the sending of a transfer the gate stays shut until a newer table is read.
	ClauseShutOnceSent
	// ClauseLeaseFirst (R7): an expelled member's Lease is deleted before the table changes.
	ClauseLeaseFirst
	// ClauseFenceWait (R7): new owners of an expelled member's slots wait fenceDelay.
	ClauseFenceWait
	// ClauseLeaverPlans (R9): a leaver plans its own moves.
	ClauseLeaverPlans
	// ClauseRestartWaits (R9): the slots of a restarted container's predecessor wait fenceDelay too.
	ClauseRestartWaits
	// ClauseNewcomersWait (R16): who creates a table waits a lease, whatever Leases there are.
	ClauseNewcomersWait
	// ClauseShutWaits (R16): a Lease must have shown a shut gate for fenceDelay.
	ClauseShutWaits
	// ClauseToldEpoch (R16): nobody goes by a table of a lower epoch than Leases tell of it.
	ClauseToldEpoch
	// ClauseEpochAbove (R16): a new table's epoch starts above the wall clock, not only above what Leases say.
	ClauseEpochAbove
	// ClauseLeasesSince (R16): a table is adopted by what Leases tell since it was made.
	ClauseLeasesSince
	// ClauseFollows (R16): nothing is written on top of a version of the table that is not known to follow from those
	// before.
	ClauseFollows
	// ClauseClearedFirst (R16): the members of a copy of another table are taken out of it fenceDelay before it is
	// adopted.
	ClauseClearedFirst
	// ClauseLapseTold (R13): a member believes its gate that the deadline has passed.
	ClauseLapseTold
)

// has says whether the clause holds.
func (m *Member) has(c Clause) bool { return m.cfg.Without&c == 0 }

// clauseNames are those of the constants, in their order.
var clauseNames = [...]string{
	"GapCounts", "GapCapped", "MissingRestarts", "MissingCounts", "LivePlanners", "OpenEpoch", "OpenConfirmed", "FenceFirst", "ShutOnceSent",
	"LeaseFirst", "FenceWait", "LeaverPlans", "RestartWaits", "NewcomersWait", "ShutWaits", "ToldEpoch", "EpochAbove", "LeasesSince",
	"Follows", "ClearedFirst", "LapseTold",
}

// ParseClause returns the clause of a name, such as "GapCounts".
func ParseClause(name string) (c Clause, ok bool) {
	i := slices.Index(clauseNames[:], name)
	if i < 0 {
		return 0, false
	}
	return 1 << i, true
}

// Names returns the names of all clauses in c, in the order of the rules.
func (c Clause) Names() []string {
	var names []string
	for i, name := range clauseNames {
		if c&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String returns the names of the clauses, by commas.
func (c Clause) String() string { return strings.Join(c.Names(), ",") }
