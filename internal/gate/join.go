package gate

import (
	"sync/atomic"

	"github.com/rota-dev/rota/slot"
)

// Join is Hold for a write whose key is not known. The verdict is
//   - Admitted if the slot is open or drains. The write counts as in flight until release is called. Further calls do
//     nothing.
//   - Parked if the slot has been drained. It may be on its way to another member.
//   - Expired from the deadline on.
//   - Refused if the slot was lost while something was in flight that still is. The write may be part of that.
//   - Unknown if the slot is shut and nothing is in flight. The write has nothing to do with this gate.
//
// There is a release with Admitted only.
func (g *Gate) Join(s slot.Slot) (release func(), verdict Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if int(s) >= len(g.slots) {
		return nil, Unknown
	}
	st := &g.slots[s]
	switch {
	case st.state == shut && st.inFlight > 0:
		return nil, Refused
	case st.state == shut:
		return nil, Unknown
	case st.state == lapsed, g.now() >= g.deadline:
		return nil, Expired
	case st.state == idle:
		return nil, Parked
	}
	g.count(st, 1)
	var released atomic.Bool
	return func() {
		if !released.Swap(true) {
			g.release(s)
		}
	}, Admitted
}

func (g *Gate) release(s slot.Slot) {
	g.mu.Lock()
	g.count(&g.slots[s], -1)
	g.mu.Unlock()
	g.Recheck(s)
}
