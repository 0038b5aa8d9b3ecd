package gate

import (
	"cmp"
	"math"
	"slices"
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

// longMax bounds how many keys of a slot are remembered because their reconciles take longer than a moment.
const longMax = 1024

// slowMax bounds how many fast reconciles it takes until a slow slot counts as fast, or the reverse.
const slowMax = 8

// learn records how long a reconcile took.
func (st *slotState) learn(key Key, took time.Duration) {
	if took < moment {
		delete(st.long, key)
		st.slow = max(st.slow-1, -slowMax)
		return
	}
	st.slow, st.lately = min(st.slow+1, slowMax), took
	if st.long == nil {
		st.long = map[Key]time.Duration{}
	}
	if _, known := st.long[key]; !known && len(st.long) >= longMax {
		for other := range st.long {
			delete(st.long, other)
			break
		}
	}
	st.long[key] = took
}

const (
	// hotKeys is how many keys are counted. A key that causes more than 1/hotKeys of the load is always among them.
	hotKeys = 64
	// hotRescale is after how many time constants the sums are scaled down. They grow by a factor of e in each.
	hotRescale = 32
)

// HotKey is a key that keeps workers busy.
type HotKey struct {
	Key  Key
	Slot slot.Slot
	// Workers is a lower bound for how many workers its finished reconciles have kept busy on average, over some minutes.
	Workers float64
}

// hottest sums up the time in flight of the keys with the largest sums. It uses Space-Saving (Metwally, Agrawal and El
// Abbadi, 2005) with weights from exponential forward decay (Cormode and others, 2009), so that old reconciles count
// little. The zero value is ready to use.
type hottest struct {
	keys     []hotKey
	at       map[Key]int   // index in keys
	since    time.Duration // start of counting
	landmark time.Duration // time 0 of weights
}

type hotKey struct {
	key  Key
	slot slot.Slot
	// sum is too large by over at most.
	sum, over float64
}

func (h *hottest) weight(at time.Duration) float64 {
	return math.Exp(float64(at-h.landmark) / float64(loadTime))
}

// add counts a key that was in flight for the given time.
func (h *hottest) add(now time.Duration, key Key, s slot.Slot, took time.Duration) {
	if h.keys == nil {
		h.keys, h.at = make([]hotKey, 0, hotKeys), make(map[Key]int, hotKeys)
		h.since, h.landmark = now-took, now
	}
	if now-h.landmark > hotRescale*loadTime {
		by := h.weight(now)
		for i := range h.keys {
			k := &h.keys[i]
			k.sum, k.over = k.sum/by, k.over/by
		}
		h.landmark = now
	}
	much := took.Seconds() * h.weight(now)
	if i, known := h.at[key]; known {
		h.keys[i].slot = s
		h.keys[i].sum += much
		return
	}
	if n := len(h.keys); n < hotKeys {
		h.keys, h.at[key] = append(h.keys, hotKey{key: key, slot: s, sum: much}), n
		return
	}
	least := 0
	for i := range h.keys {
		if h.keys[i].sum < h.keys[least].sum {
			least = i
		}
	}
	k := &h.keys[least]
	delete(h.at, k.key)
	*k = hotKey{key: key, slot: s, sum: k.sum + much, over: k.sum}
	h.at[key] = least
}

// Hottest returns the n keys that have kept the most workers busy over some minutes, hottest first. It counts finished
// reconciles in slots that are not shut.
func (g *Gate) Hottest(n int) []HotKey {
	g.mu.Lock()
	defer g.mu.Unlock()
	h, now := &g.hottest, g.now()
	young := -math.Expm1(-max(float64(now-h.since), float64(loadYouth)) / float64(loadTime))
	all := h.weight(now) * loadTime.Seconds() * young
	var out []HotKey
	for _, k := range h.keys {
		if workers := (k.sum - k.over) / all; g.slots[k.slot].state != shut && workers >= 0.001 {
			out = append(out, HotKey{k.key, k.slot, workers})
		}
	}
	slices.SortFunc(out, func(a, b HotKey) int {
		return cmp.Or(cmp.Compare(b.Workers, a.Workers), cmp.Compare(a.Key.Queue, b.Key.Queue),
			cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	return out[:min(n, len(out))]
}
