package delivery

import "time"

// past remembers where a stream was, second by second.
type past struct {
	at       [8]time.Time
	versions [8]string
	next     int
}

// note remembers a position, at most one a second.
func (p *past) note(now time.Time, version string) {
	last := (p.next + len(p.at) - 1) % len(p.at)
	if now.Sub(p.at[last]) < time.Second {
		return
	}
	p.at[p.next], p.versions[p.next] = now, version
	p.next = (p.next + 1) % len(p.at)
}

// before returns the latest position remembered from at or before a time, or else the earliest of all; "" where
// there is none.
func (p *past) before(t time.Time) string {
	best, earliest := -1, -1
	for i, at := range p.at {
		switch {
		case at.IsZero():
			continue
		case !at.After(t) && (best < 0 || at.After(p.at[best])):
			best = i
		}
		if earliest < 0 || at.Before(p.at[earliest]) {
			earliest = i
		}
	}
	if best < 0 {
		best = earliest
	}
	if best < 0 {
		return ""
	}
	return p.versions[best]
}
