package coverage

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// mixed is the part of a Tracker that separates rollouts from members that do not belong together.
type mixed struct {
	seen map[string]sight // by the key of a difference, which does not depend on its members
	// pending are the differences of the last look that do not count yet.
	pending []Difference
	// members are the table's members, and since is when they last changed.
	members string
	quiet   time.Duration
}

// look returns the differences that count.
func (m *mixed) look(at time.Duration, t *table.Table, found []Difference, reports map[string]renewal) []Finding {
	var ids strings.Builder
	for _, member := range t.Members {
		ids.WriteString(member.ID + " ")
	}
	if ids.String() != m.members {
		m.members, m.quiet = ids.String(), at
	}
	var counts []Finding
	now := map[string]sight{}
	m.pending = nil
	for _, d := range found {
		key := d.key()
		first, seen := m.seen[key]
		if !seen {
			first = sight{at: at, serials: map[string]uint64{}}
			for _, id := range d.Members() {
				first.serials[id] = reports[id].serial
			}
		}
		first.counts = d.lives(first, reports) && (d.Clash != "" ||
			at-m.quiet >= RolloutQuiet && at-first.at >= RolloutQuiet || at-first.at >= RolloutLongest)
		now[key] = first
		if first.counts {
			counts = append(counts, d.finding())
		} else {
			m.pending = append(m.pending, d)
		}
	}
	m.seen = now
	return counts
}

// key identifies a difference while members with these values come and go.
func (d Difference) key() string {
	parts := []string{d.About, d.Clash}
	for _, v := range d.Values {
		parts = append(parts, v.Text)
	}
	return strings.Join(parts, "\n")
}

// lives reports whether, for each value, a member has renewed its report since the first look at the difference.
func (d Difference) lives(first sight, reports map[string]renewal) bool {
	for _, v := range d.Values {
		if !slices.ContainsFunc(v.Members, func(id string) bool { return reports[id].serial > first.serials[id] }) {
			return false
		}
	}
	return true
}

// rollout reports whether only some members shard a kind, presumably because of a rollout.
func (m *mixed) rollout(kind schema.GroupKind) bool {
	return slices.ContainsFunc(m.pending, func(d Difference) bool {
		k, ok := d.kind()
		return ok && k == kind
	})
}

// undecided reports whether the tracker still waits for reports of members that cannot work together and were seen by
// the given time.
func (m *mixed) undecided(by time.Duration) bool {
	return slices.ContainsFunc(m.pending, func(d Difference) bool { return d.Clash != "" && m.seen[d.key()].at <= by })
}
