package gate

import (
	"math"
	"time"

	"github.com/rota-dev/rota/slot"
)

const (
	// loadTime is the time constant of a load: load from that long ago counts 1/e as much as current load.
	loadTime = 2 * time.Minute
	// loadYouth is the least time over which a load is averaged, since a shorter one would mostly show chance. A slot that
	// arrived later counts as if nothing had been in flight before.
	loadYouth = 20 * time.Second
)

// average is the exponentially weighted moving average of a number that changes at times, like a Unix load average but
// without a fixed sampling period. Its zero value begins at 0.
type average struct {
	at          time.Duration // the sums include the number until then
	sum, weight float64
}

// pass adds that the number was n since the last call.
func (a *average) pass(now time.Duration, n int) {
	gain := -math.Expm1(-float64(now-a.at) / float64(loadTime))
	a.at = now
	a.sum += gain * (float64(n) - a.sum)
	a.weight += gain * (1 - a.weight)
}

// value returns the average over the observed time.
func (a average) value() float64 {
	youth := -math.Expm1(-float64(loadYouth) / float64(loadTime))
	return a.sum / max(a.weight, youth)
}

// busy adds n to the workers that a slot's keys keep busy.
func (st *slotState) busy(now time.Duration, n int) {
	st.load.pass(now, st.workers)
	st.workers += n
}

// Loads returns how many workers the keys of each slot have kept busy on average over some minutes, in seconds of work
// per second. It omits slots that are shut and loads below 0.001.
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
