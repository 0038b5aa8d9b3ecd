package gate

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/rota-dev/rota/slot"
)

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
