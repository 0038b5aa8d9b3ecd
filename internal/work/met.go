package work

import "github.com/rota-dev/rota/slot"

// met holds the keys that were reconciled in a slot since it arrived. There are many, most of them without an entry.
type met[K comparable] struct {
	// keys maps each key to the round in which it was last reset, 0 if never. round is the current round; a new one begins
	// when handlers stop hearing of the slot.
	keys  map[K]int
	round int
	// shown is true if the informers show what this member wrote in the slot.
	shown bool
	// sweep is the number of keys at which those without an object are looked for and dropped.
	sweep int
}

// leastSweep is the least value of sweep.
const leastSweep = 64

// Meet records that a key in the slot is about to be reconciled. fresh is true if the key has to be reset first. shown
// is true if the informers are known to show what this member wrote in the slot. exists reports whether a key has an
// object: keys without one that need no reconcile are dropped from time to time.
func (k *Keys[K, F]) Meet(s slot.Slot, key K, exists func(K) bool) (fresh, shown bool) {
	of := k.in(s)
	if of.met == nil {
		of.met = &met[K]{keys: map[K]int{}, round: 1, sweep: leastSweep}
	}
	m := of.met
	if len(m.keys) >= m.sweep {
		for other := range m.keys {
			if !k.Busy(other) && !exists(other) {
				delete(m.keys, other)
			}
		}
		m.sweep = max(leastSweep, 2*len(m.keys))
	}
	round := m.keys[key]
	m.keys[key] = round
	return round != m.round, m.shown
}

// Reset records that a key was reset after the informers have shown what this member wrote in its slot. Call it during
// the flight for which Meet was called, and only if the slot has not been silenced since.
func (k *Keys[K, F]) Reset(s slot.Slot, key K) {
	if of := k.slots[s]; of != nil && of.met != nil {
		of.met.keys[key], of.met.shown = of.met.round, true
	}
}

// ended updates a key after its flight has ended. whole is true if the flight was not cut short, gone if the key's
// object is gone, and dealt if the flight dealt with that.
func (m *met[K]) ended(key K, whole, gone, dealt bool) {
	if !whole {
		m.shown = false // it may have written until now, although the slot was opened again
	}
	if _, known := m.keys[key]; known && gone {
		m.keys[key] = 0 // a new object of the same name has to be reset
	}
	if gone && whole && dealt {
		delete(m.keys, key)
	}
}

// Silence records that handlers no longer hear of the slots, so their keys have to be reset again.
func (k *Keys[K, F]) Silence(set slot.Set) {
	for s, of := range k.slots {
		if set.Has(s) && of.met != nil {
			of.met.round++
			of.met.shown = false
		}
	}
}

// losses holds the keys that were met in slots that have left since, until OnLost was called for them.
type losses[K comparable] struct {
	// wanted is true if the controller has a function of OnLost.
	wanted bool
	// waiting maps keys to the slots that left. called holds the keys for which OnLost is being called.
	waiting map[K]slot.Slot
	called  map[K]struct{}
}

// WantLosses sets whether keys are remembered that were met in slots that left.
func (k *Keys[K, F]) WantLosses(wanted bool) { k.losses.wanted = wanted }

// leave records that a slot has left.
func (k *Keys[K, F]) leave(s slot.Slot, of *inSlot[K, F]) {
	if of.met == nil {
		return
	}
	for key := range of.met.keys {
		k.Lose(s, key)
	}
	of.met = nil
}

// Lose records that a key was met in a slot that has left.
func (k *Keys[K, F]) Lose(s slot.Slot, key K) {
	if !k.losses.wanted {
		return
	}
	if k.losses.waiting == nil {
		k.losses.waiting = map[K]slot.Slot{}
	}
	k.losses.waiting[key] = s
}

// BeginLoss returns a lost key that is free and not in flight, with its slot. Until EndLoss, OnLost is being called for
// the key, and it must not be reconciled.
func (k *Keys[K, F]) BeginLoss(free func(slot.Slot, K) bool) (key K, s slot.Slot, found bool) {
	for key, s := range k.losses.waiting {
		if k.flying[key] == nil && free(s, key) {
			k.unlose(key)
			k.losses.called[key] = struct{}{}
			return key, s, true
		}
	}
	return key, s, false
}

// EndLoss ends what BeginLoss began.
func (k *Keys[K, F]) EndLoss(key K) { delete(k.losses.called, key) }

// Regain reports whether a key in flight is lost and OnLost was not called for it. If so, the caller calls OnLost.
func (k *Keys[K, F]) Regain(key K) (lost bool) {
	_, lost = k.losses.waiting[key]
	k.unlose(key)
	return lost
}

// unlose records that a key no longer waits for OnLost.
func (k *Keys[K, F]) unlose(key K) {
	if delete(k.losses.waiting, key); len(k.losses.waiting) == 0 {
		k.losses.waiting = nil // it may have been large
	}
}

// Losses returns how many keys wait for OnLost, and for how many it is being called.
func (k *Keys[K, F]) Losses() (waiting, called int) {
	return len(k.losses.waiting), len(k.losses.called)
}

// DropLosses drops the keys that wait for OnLost, and returns how many there were.
func (k *Keys[K, F]) DropLosses() (dropped int) {
	dropped = len(k.losses.waiting)
	k.losses.waiting = nil
	return dropped
}
