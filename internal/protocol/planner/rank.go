package planner

import (
	"cmp"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// This file decides which members plan (rule R3).
//
// Any member could plan, since a plan is a compare-and-swap of the table. But a planner has to watch every Lease, and
// planners that write at the same moment lose swaps. So a few members plan. Each member decides locally whether it is
// one of them, from the table and from the Leases that it watches:
//
//  1. Candidates are the members that are not leaving and that read the newest table format of all members not held
//     dead. Candidates are sorted by the hash of their IDs.
//  2. The first three candidates that are not held dead are the planners. Their ranks are 0, 1 and 2.
//  3. A planner writes its plan rank × RetryPeriod/8 after it found something to plan. By default that is at once,
//     after 250 ms and after 500 ms. By then it has usually seen the plan of the planner before it.
//  4. Any other member also plans, with rank 3, while the table names a member whose Lease has been silent for
//     LeaseDuration × (24 + h)/16. h is 0 to 15, from the hash of its own ID, so this takes 1.5 to 2.44 leases. A
//     member is held dead after one lease: the planners had half a lease or more. h keeps all members from starting to
//     watch every Lease at once.
//
// Two members may disagree about which members plan, since each judges by its own watch. The only cost is a lost swap.

// planners is how many members plan.
const planners = 3

// candidate is a member that may plan.
type candidate struct {
	id   string
	hash uint64
	// format is the newest table format that it reads.
	format int
}

// Candidates caches the members of one version of the table that may plan, in order.
type Candidates struct {
	version string
	sorted  []candidate
	// mixed is set if they do not all read the same newest format.
	mixed bool
}

func candidatesOf(version string, members []table.Member) Candidates {
	c := Candidates{version: version}
	for i := range members {
		if m := &members[i]; !m.Leaving {
			c.sorted = append(c.sorted, candidate{m.ID, xxhash.Sum64String(m.ID), m.MaxFormat})
			c.mixed = c.mixed || m.MaxFormat != c.sorted[0].format
		}
	}
	slices.SortFunc(c.sorted, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.id, b.id))
	})
	return c
}

// shortlist returns the IDs of the candidates up to the last planner. The planners are those that are not dead.
func (c *Candidates) shortlist(dead func(id string) bool) (ids []string) {
	newest := 0
	if c.mixed {
		for _, other := range c.sorted {
			if !dead(other.id) {
				newest = max(newest, other.format)
			}
		}
	}
	live := 0
	for _, other := range c.sorted {
		if other.format < newest {
			continue
		}
		ids = append(ids, other.id)
		if !dead(other.id) {
			live++
		}
		if live == planners {
			break
		}
	}
	return ids
}

// rankOf returns the rank of a planner, or -1 for other members. The member must not be held dead.
func rankOf(id string, shortlist []string, dead func(id string) bool) int {
	rank := 0
	for _, other := range shortlist {
		if other == id {
			return rank
		}
		if !dead(other) {
			rank++
		}
	}
	return -1
}

// headStart is how long a planner of this rank waits for the planners before it.
func headStart(rank int, retryPeriod time.Duration) time.Duration {
	return time.Duration(rank) * retryPeriod / 8
}

// patience is how long a Lease must be silent before a member that is not a planner also plans.
func patience(id string, leaseDuration time.Duration) time.Duration {
	return leaseDuration * time.Duration(24+xxhash.Sum64String(id)%16) / 16
}

// Shortlist returns the planners of a version of the table, including candidates before them that are held dead.
func (c *Candidates) Shortlist(version string, t *table.Table, dead func(id string) bool) []string {
	if c.version != version {
		*c = candidatesOf(version, t.Members)
	}
	return c.shortlist(dead)
}

// Rank returns the rank of a member among the planners, or -1 if it does not plan. silent reports whether the Lease of
// any member of the table has been silent for the given time.
func (c *Candidates) Rank(
	id string, lease time.Duration, version string, t *table.Table, dead func(string) bool,
	silent func(time.Duration) bool,
) int {
	if _, ok := t.Member(id); !ok {
		return -1
	}
	rank := rankOf(id, c.Shortlist(version, t, dead), dead)
	if rank < 0 && silent(patience(id, lease)) {
		return planners
	}
	return rank
}
