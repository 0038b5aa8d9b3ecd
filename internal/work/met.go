package work

import "github.com/rota-dev/rota/slot"

// met are the keys that were reconciled in a slot since it came. They are many, and most have no entry.
type met[K comparable] struct {
	// keys are by the round in which they were last reset; 0: never. round is that of now: another one begins when
	// handlers hear nothing of the slot any more.
	keys  map[K]int
	round int
	// shown says that the informers show what this member wrote in the slot.
	shown bool
	// sweep is with how many keys those without an object are looked for.
	sweep int
}

// leastSweep is the least number of keys of a slot among which those without an object are looked for.
const leastSweep = 64

// Meet notes that a key in the slot is about to be reconciled. It reports whether the key has to be reset before, and
// whether the informers are known to show what this member wrote there. exists says whether a key has an object: what
// has none, and needs no reconcile, is forgotten now and then.
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

// Reset notes that a key was reset, after the informers have shown what this member wrote in its slot. Call it in the
// flight for which Meet was called: the slot must not have been silenced since.
func (k *Keys[K, F]) Reset(s slot.Slot, key K) {
	if of := k.slots[s]; of != nil && of.met != nil {
		of.met.keys[key], of.met.shown = of.met.round, true
	}
}

// ended notes what is known once a flight has ended: whether it was cut short, whether its object is gone, and whether
// it dealt with that.
func (m *met[K]) ended(key K, whole, gone, dealt bool) {
	if !whole {
		m.shown = false // the reconcile may have written until now, although the slot has been opened again
	}
	if _, known := m.keys[key]; known && gone {
		m.keys[key] = 0 // a namesake has to be reset
	}
	if gone && whole && dealt {
		delete(m.keys, key)
	}
}

// Silence notes that handlers hear nothing of the slots from now on: their keys have to be reset again.
func (k *Keys[K, F]) Silence(set slot.Set) {
	for s, of := range k.slots {
		if set.Has(s) && of.met != nil {
			of.met.round++
			of.met.shown = false
		}
	}
}
