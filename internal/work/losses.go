package work

import "github.com/rota-dev/rota/slot"

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

// InLoss reports whether OnLost is being called for a key.
func (k *Keys[K, F]) InLoss(key K) bool { _, called := k.losses.called[key]; return called }

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
