package member

import "time"

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

// wanted reports whether the process intends to send long writes.
func (l *longWrites) wanted(now time.Duration) bool { return now < l.until }

// announces returns the LongestWrite of a renewal that is sent now.
func (l *longWrites) announces(now time.Duration, cfg *Config) time.Duration {
	if l.wanted(now) || l.sent {
		return cfg.LongestWrite()
	}
	return 0
}

// allow allows long writes once they are announced, and withdraws the permission when they are no longer wanted. It
// returns nil if nothing changes.
func (l *longWrites) allow(wanted bool) Action {
	switch {
	case wanted && l.announced && !l.allowed:
		l.allowed, l.sent = true, true
		return AllowLong{Allowed: true}
	case !wanted && l.allowed:
		l.allowed = false
		l.round++
		return AllowLong{Round: l.round}
	}
	return nil
}

// ended records that no long write is in flight.
func (l *longWrites) ended(e ShortWrites) {
	if !l.allowed && e.Round == l.round {
		l.sent = false
	}
}
