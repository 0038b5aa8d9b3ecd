package judge

import (
	"time"

	"github.com/rota-dev/rota/slot"
)

// Margin is how long before a kill a change may happen that does not reach the killed process any more.
const Margin = 2 * time.Second

// Crash is a process that was killed.
type Crash struct {
	Pod string
	At  time.Duration
	// slots are those that the process owned then, and those handed over to it before its death was noticed.
	slots slot.Set
}

// CrashOf returns the crash of a process that was killed at that time.
func (h History) CrashOf(pod string, at time.Duration) Crash {
	c := Crash{Pod: pod, At: at}
	for i, v := range h {
		if i+1 < len(h) && h[i+1].At <= at {
			continue // replaced before
		}
		for _, m := range v.Table.Members {
			if m.Pod == pod {
				c.slots = c.slots.Union(v.Table.Owned(m.ID).Intersect(v.Table.Slots.All()))
			}
		}
	}
	return c
}

// Excuses says that nobody may have seen what happened in a slot at that time: the slot was the killed process's, or on
// its way to it, and no other process was active there yet. A handover may end in dead hands: who gave the slot looks
// away, and who gets it next cannot see what is gone. Only a move that was planned before until counts; 0: any.
func (c Crash) Excuses(moves []Move, s slot.Slot, at, until time.Duration) bool {
	if !c.slots.Has(s) {
		return false
	}
	for _, m := range moves {
		if m.Slot != s || m.Active <= c.At {
			continue
		}
		from := m.Planned
		if m.From == c.Pod {
			from = c.At - Margin
		}
		return from <= at && at < m.Active && (until == 0 || m.Planned < until)
	}
	return false
}
