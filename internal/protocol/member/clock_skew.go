package member

import "github.com/rota-dev/rota/internal/protocol/table"

// clockDistance is how many seconds a time that another member wrote is away from now, before or after. The other clock
// may be wrong. So a time that lies ahead expires like one that lies behind, and a wrong clock makes nothing last
// longer.
func (m *Member) clockDistance(wall int64) int64 {
	d := m.now.Wall - wall
	return max(d, -d)
}

// maxSkew is the difference of wall clocks, in seconds, from which on it is reported. It allows for a member that is
// seen late.
const maxSkew = 120

// checkClock reports a member that has just joined if its wall clock differs from this one. The first planner does it.
func (m *Member) checkClock(other table.Member) {
	if other.ID == m.cfg.Self.ID || m.now.Wall == 0 || m.clockDistance(other.Joined) < maxSkew || m.rank() != 0 {
		return
	}
	m.note("ClockSkew", true, "member %s joined %d s away from this member's wall clock: synchronize their clocks; "+
		"until then rollouts and crash loops may go unnoticed", other.ID, m.clockDistance(other.Joined))
}
