package member

import (
	"time"
)

// longWrites tracks whether this member's process may send writes that take longer than WriteTimeout (rule R2). Other
// members must know before such a write is sent, so the Lease announces it.
//
//	     wanted: the Lease is renewed,       not wanted: AllowLong
//	     and announces it: AllowLong             withdraws it
//	short ─────────────────────▶ allowed ─────────────────────▶ ending
//	  ▲                             ▲   wanted: AllowLong         │
//	  │                             └─────────────────────────────┤
//	  └── the next renewal no longer announces it ◀── ShortWrites ┘
type longWrites struct {
	// until is when the process no longer intends to send such writes, as Time.Mono.
	until time.Duration
	// asked: the last renewal that was sent announces them. announced: the Lease in its answer also does.
	asked, announced bool
	// allowed: the process may send them. sent: some may be in flight.
	allowed, sent bool
	// round is the round of the last withdrawal. Answers to earlier rounds do not count.
	round uint64
}

// wantsLong reports whether the process intends to send long writes.
func (m *Member) wantsLong() bool { return m.now.Mono < m.long.until }

// longestWrite returns what a renewal sent now announces.
func (m *Member) longestWrite() time.Duration {
	if m.wantsLong() || m.long.sent {
		return m.cfg.LongestWrite()
	}
	return 0
}

// allowLong allows long writes once they are announced, and withdraws the permission when they are no longer wanted.
func (m *Member) allowLong() {
	l := &m.long
	wanted := m.wantsLong()
	if wanted {
		m.at(l.until)
	}
	switch {
	case wanted && l.announced && !l.allowed:
		l.allowed, l.sent = true, true
		m.do(AllowLong{Allowed: true})
	case !wanted && l.allowed:
		l.allowed = false
		l.round++
		m.do(AllowLong{Round: l.round})
	}
}

// shortWrites records that no long write is in flight.
func (m *Member) shortWrites(e ShortWrites) {
	if !m.long.allowed && e.Round == m.long.round {
		m.long.sent = false
	}
}

// silenceLimit is how long another member's Lease must stay unchanged until the member is held dead. A member with a
// longer lease than this one may send writes that last beyond this member's LeaseDuration.
func (m *Member) silenceLimit(id string) time.Duration {
	if o := m.watch.others[id]; o != nil {
		return max(m.cfg.LeaseDuration, o.lease.LongestWrite)
	}
	return m.cfg.LeaseDuration
}
