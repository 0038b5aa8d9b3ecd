package feed

import (
	"sync/atomic"
	"time"
)

// past remembers the positions of a stream in the last seconds.
type past struct {
	at       [8]time.Time
	versions [8]string
	next     int
	recent   atomic.Bool // one was added within the last second
}

// remember adds a position, one a second. Looking at the clock for every event would be a fifth of what an event of
// another member's object costs.
func (p *past) remember(version string) {
	if p.recent.Load() {
		return
	}
	p.add(time.Now(), version)
	p.recent.Store(true)
	time.AfterFunc(time.Second, func() { p.recent.Store(false) })
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
