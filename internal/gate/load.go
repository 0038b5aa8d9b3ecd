package gate

import (
	"math"
	"time"

	"github.com/rota-dev/rota/slot"
)

const (
	// loadTime is the time constant of a load: what was so long ago counts 1/e of what is now.
	loadTime = 2 * time.Minute
	// loadYouth is the time before which a load would say more of chance than of the slot: a slot that came later counts
	// as if nothing had been in flight until then.
	loadYouth = 20 * time.Second
)

// average is the exponentially weighted moving average of a number that changes now and then, as of the load of a Unix
// system, but without a fixed time between two looks. Its zero value begins at 0.
type average struct {
	at          time.Duration // until then the number is in the sums
	sum, weight float64
}

// pass takes in that the number was n since the last call.
func (a *average) pass(now time.Duration, n int) {
	gain := -math.Expm1(-float64(now-a.at) / float64(loadTime))
	a.at = now
	a.sum += gain * (float64(n) - a.sum)
	a.weight += gain * (1 - a.weight)
}

// value is the average, of what is known.
func (a average) value() float64 {
	youth := -math.Expm1(-float64(loadYouth) / float64(loadTime))
	return a.sum / max(a.weight, youth)
}

// busy counts workers that a slot's keys keep busy.
func (st *slotState) busy(now time.Duration, n int) {
	st.load.pass(now, st.workers)
	st.workers += n
}

// Loads returns how many workers the keys of each slot have kept busy on average, over some minutes: seconds of work
// per second. Slots that are shut, and those with less than a thousandth, are left out.
func (g *Gate) Loads() map[slot.Slot]float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	out := map[slot.Slot]float64{}
	for i := range g.slots {
		st := &g.slots[i]
		if st.state == shut || st.workers == 0 && st.load.sum == 0 {
			continue
		}
		load := st.load
		load.pass(now, st.workers)
		if v := load.value(); v >= 0.001 {
			out[slot.Slot(i)] = v
		}
	}
	return out
}
