package delivery

import (
	"time"

	"github.com/rota-dev/rota/slot"
)

// past remembers the positions of a stream in the last seconds.
type past struct {
	at       [8]time.Time
	versions [8]string
	next     int
}

// add remembers a position, at most one a second.
func (p *past) add(now time.Time, version string) {
	last := (p.next + len(p.at) - 1) % len(p.at)
	if now.Sub(p.at[last]) < time.Second {
		return
	}
	p.at[p.next], p.versions[p.next] = now, version
	p.next = (p.next + 1) % len(p.at)
}

// before returns the latest remembered position from at or before a time, or else the earliest; "" if there is none.
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

// backlog is how old a change may be that the former owner of a slot has not reconciled, because its watch or its queue
// was behind. An older one only loses its place in the queue.
const backlog = 5 * time.Second

// takeSince removes and returns the versions of the lists that brought the slots; nil: there were none. recently is a
// version from a moment ago; "" if none is known.
func (s *source) takeSince(set slot.Set) (since []string, recently string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since = s.core.TakeSince(set)
	if since == nil {
		return nil, ""
	}
	return since, s.past.before(time.Now().Add(-backlog))
}
