// Package work tracks the keys of controllers whose objects are sharded. Keys holds the state of each key and is pure:
// it has no lock, clock or channel, and its driver reports each event and when it happened. Controller drives Keys,
// along the path of a key from the queue through the gate and back.
package work

import (
	"time"

	"github.com/rota-dev/rota/slot"
)

// Keys tracks the keys of one controller. A key has an entry while it waits, is in flight or is claimed, and while its
// last reconcile has failed. Methods must not be called concurrently.
//
// K identifies an object of the controller's kind. F is the type of the driver's data about a flight.
//
// A key waits in one slot at a time: in the queue, with a worker, owed to the slot, or for a kind to be listed. If it
// moves to another slot, because a new object has its name, it continues to wait there but is no longer owed. A flight
// stays in the slot in which it was admitted, and a failure in the slot of its reconcile.
//
// Drivers must begin each step of a key's path before they end the previous one. Otherwise a slot would seem to be done
// with a deletion that is about to wait elsewhere.
type Keys[K comparable, F any] struct {
	entries map[K]*entry[K, F]
	slots   map[slot.Slot]*inSlot[K, F]
	// flying and failing index the entries with a flight and with a streak, which are few.
	flying, failing map[K]*entry[K, F]
	// lapsed holds keys that were failing when their slot was lost, up to ExplainedFailures.
	lapsed map[K]struct{}
	sum    sum[K]
	losses losses[K]
}

// inSlot is the state of a slot.
type inSlot[K comparable, F any] struct {
	// entries holds the entries that wait in the slot.
	entries map[K]*entry[K, F]
	// deleted is when a deletion was last reconciled, 0 if never.
	deleted time.Duration
	// opened is when the slot was last opened, 0 if never.
	opened time.Duration
	// met holds the keys that were reconciled here since the slot arrived; nil if Meet was not called.
	met *met[K]
}

// entry is one key.
type entry[K comparable, F any] struct {
	key   K
	slot  slot.Slot
	place place
	// arrived is true if the worker got the key because its slot arrived.
	arrived bool
	// listed is true if the entry is among the entries of its slot.
	listed bool
	// owed keys are enqueued when their slot opens: keys of deleted objects that could not be reconciled since the gate
	// was shut, and keys that were added while their slot was on its way here. The former have no object any more that
	// would enqueue them, and the latter would come late.
	owed bool
	// awaits is true if the key waits for a kind to be listed.
	awaits bool
	// claim is the item through which a worker syncs the object.
	claim any
	// flight is nil unless the key is in flight.
	flight *Flight[F]
	// streak is nil unless the last reconcile failed.
	streak *Streak
}

// place is where a waiting key is. It may be in the queue again while a worker has it.
type place struct {
	queued, taken bool
	// since is when the key became ready for a worker, 0 while it waits for a delay to end.
	since time.Duration
	// arrives is true if the key is in the queue because its slot arrived, not because of a change.
	arrives bool
}

// Flight is a key that was admitted.
type Flight[F any] struct {
	Slot slot.Slot
	// Gone is true if the object was gone when the key was admitted.
	Gone bool
	// Arrived is true if the key is reconciled because its slot arrived, not because of a change. Beside is how many other
	// keys were in flight at the start. Begin sets both.
	Arrived bool
	Beside  int
	// Ended is true once the result is known. Err is the result.
	Ended bool
	Err   error
	// With is the driver's data.
	With F
}

// NewKeys returns an empty set of keys.
func NewKeys[K comparable, F any]() *Keys[K, F] {
	return &Keys[K, F]{
		entries: map[K]*entry[K, F]{}, slots: map[slot.Slot]*inSlot[K, F]{},
		flying: map[K]*entry[K, F]{}, failing: map[K]*entry[K, F]{}, lapsed: map[K]struct{}{},
		losses: losses[K]{called: map[K]struct{}{}},
	}
}

// at returns the entry of a key, which is in slot s from now on. The caller calls tidy after changing the entry.
func (k *Keys[K, F]) at(s slot.Slot, key K) *entry[K, F] {
	e := k.entryOf(key)
	if e.slot != s { // the key is new, or a new object has its name
		k.unlist(e)
		e.slot, e.owed = s, false
	}
	return e
}

// entryOf returns the entry of a key, which has no slot if it is new.
func (k *Keys[K, F]) entryOf(key K) *entry[K, F] {
	e := k.entries[key]
	if e == nil {
		e = &entry[K, F]{key: key}
		k.entries[key] = e
	}
	return e
}

// in returns the state of a slot. No slot is forgotten, since there are few.
func (k *Keys[K, F]) in(s slot.Slot) *inSlot[K, F] {
	of := k.slots[s]
	if of == nil {
		of = &inSlot[K, F]{entries: map[K]*entry[K, F]{}}
		k.slots[s] = of
	}
	return of
}

func (k *Keys[K, F]) unlist(e *entry[K, F]) {
	if e.listed {
		delete(k.slots[e.slot].entries, e.key)
		e.listed = false
	}
}

// tidy lists an entry in its slot while it waits, and drops the entry if it is empty.
func (k *Keys[K, F]) tidy(e *entry[K, F]) {
	switch {
	case !e.waits():
		k.unlist(e)
		if e.flight == nil && e.claim == nil && e.streak == nil {
			delete(k.entries, e.key)
		}
	case !e.listed:
		k.in(e.slot).entries[e.key] = e
		e.listed = true
	}
}

// waits reports whether the key is on its way to a reconcile.
func (e *entry[K, F]) waits() bool { return e.place != place{} || e.owed || e.awaits }

// Slot returns the slot of a key that waits or is in flight. With slot.KeyUID this may be the only source for it.
func (k *Keys[K, F]) Slot(key K) (s slot.Slot, known bool) {
	e := k.entries[key]
	if e == nil || !e.waits() && e.flight == nil {
		return 0, false
	}
	return e.slot, true
}

// Queue records that a key enters the queue. ready is the current time if a worker may have it at once, and 0 if it
// waits for a delay to end.
func (k *Keys[K, F]) Queue(s slot.Slot, key K, ready time.Duration) {
	e := k.at(s, key)
	if e.place.queued = true; e.place.since == 0 {
		e.place.since = ready
	}
	k.tidy(e)
}

// Arrive records that a key is in the queue because its slot arrived.
func (k *Keys[K, F]) Arrive(key K) {
	if e := k.entries[key]; e != nil && e.place.queued {
		e.place.arrives = true
	}
}

// Take records that a worker got the key from the queue. queued is true if the key was in the queue. since is when it
// became ready there, 0 if it waited for a delay to end or arrived with its slot.
func (k *Keys[K, F]) Take(s slot.Slot, key K) (since time.Duration, queued bool) {
	e := k.at(s, key)
	if queued, e.arrived = e.place.queued, e.place.arrives; !e.arrived {
		since = e.place.since
	}
	e.place = place{taken: true}
	k.tidy(e)
	return since, queued
}

// Arrived reports whether a worker has the key because its slot arrived, not because of a change.
func (k *Keys[K, F]) Arrived(key K) bool {
	e := k.entries[key]
	return e != nil && e.place.taken && e.arrived
}

// Drop records that the worker no longer has the key, and reports whether it had. The key may be in the queue again.
func (k *Keys[K, F]) Drop(s slot.Slot, key K) (had bool) {
	e := k.at(s, key)
	had, e.place.taken = e.place.taken, false
	k.tidy(e)
	return had
}

// InLoss reports whether OnLost is being called for a key.
func (k *Keys[K, F]) InLoss(key K) bool { _, called := k.losses.called[key]; return called }

// Owe marks a key to be enqueued when its slot opens. Paid undoes that.
func (k *Keys[K, F]) Owe(s slot.Slot, key K) {
	e := k.at(s, key)
	e.owed = true
	k.tidy(e)
}

// Paid records that a key need not be enqueued when its slot opens.
func (k *Keys[K, F]) Paid(key K) {
	if e := k.entries[key]; e != nil {
		e.owed = false
		k.tidy(e)
	}
}

// Opened records that slots are open since now, and returns the keys that were owed to them.
func (k *Keys[K, F]) Opened(set slot.Set, now time.Duration) []K {
	var all []K
	for _, s := range set.Slots() {
		k.in(s).opened = now
		keys := k.ask(s, func(e *entry[K, F]) bool { return e.owed })
		for _, key := range keys {
			k.Paid(key)
		}
		all = append(all, keys...)
	}
	return all
}

// OpenedSince returns when the slot of a key in flight was last opened, 0 if never.
func (k *Keys[K, F]) OpenedSince(key K) (opened time.Duration, flies bool) {
	e := k.flying[key]
	if e == nil {
		return 0, false
	}
	return k.in(e.flight.Slot).opened, true
}

// Await makes the key wait for a kind to be listed.
func (k *Keys[K, F]) Await(s slot.Slot, key K) {
	e := k.at(s, key)
	e.awaits = true
	k.tidy(e)
}

// Complete returns the keys that waited for kinds in slots that are no longer incomplete.
func (k *Keys[K, F]) Complete(incomplete func(slot.Slot) bool) []K {
	var all []K
	for s := range k.slots {
		keys := k.Awaiting(s)
		if len(keys) == 0 || incomplete(s) {
			continue
		}
		for _, key := range keys {
			e := k.entries[key]
			e.awaits = false
			k.tidy(e)
		}
		all = append(all, keys...)
	}
	return all
}

// Begin records that a key is in flight from now on. A key has one flight at a time.
func (k *Keys[K, F]) Begin(key K, f Flight[F]) {
	e := k.at(f.Slot, key)
	f.Beside = len(k.flying)
	e.flight, k.flying[key] = &f, e
	k.tidy(e)
}

// Result records the result of a key in flight, nil for success. Of several weak results the first counts. A result
// that is not weak replaces them.
func (k *Keys[K, F]) Result(key K, err error, weak bool) {
	if e := k.flying[key]; e != nil && !(weak && e.flight.Ended) {
		e.flight.Ended, e.flight.Err = true, err
	}
}

// End records that a key is no longer in flight, and returns its flight.
func (k *Keys[K, F]) End(key K) (f Flight[F], flew bool) {
	e := k.flying[key]
	if e == nil {
		return f, false
	}
	f, e.flight = *e.flight, nil
	delete(k.flying, key)
	k.tidy(e)
	return f, true
}

// Ended updates a key after its flight has ended. whole is true if it was not cut short, and gone if its object is gone
// by now. If the key is owed again, call Owe first.
func (k *Keys[K, F]) Ended(key K, f Flight[F], now time.Duration, whole, gone bool) {
	if f.Gone && whole && !k.queuedIn(f.Slot, key) {
		k.in(f.Slot).deleted = now
	}
	if of := k.slots[f.Slot]; of != nil && of.met != nil {
		of.met.ended(key, whole, gone, f.Gone && f.Err == nil)
	}
}

func (k *Keys[K, F]) queuedIn(s slot.Slot, key K) bool {
	e := k.entries[key]
	return e != nil && e.slot == s && e.place.queued
}

// ask returns the keys in a slot for which is returns true.
func (k *Keys[K, F]) ask(s slot.Slot, is func(*entry[K, F]) bool) []K {
	of := k.slots[s]
	if of == nil {
		return nil
	}
	var keys []K
	for key, e := range of.entries {
		if is(e) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Waiting returns the keys in a slot that are in the queue or with a worker, but not in flight.
func (k *Keys[K, F]) Waiting(s slot.Slot) []K {
	return k.ask(s, func(e *entry[K, F]) bool { return e.place != place{} })
}

// Undone returns the keys in a slot that are on their way to a reconcile, but not in flight.
func (k *Keys[K, F]) Undone(s slot.Slot) []K { return k.ask(s, (*entry[K, F]).waits) }

// Awaiting returns the keys in a slot that wait for kinds to be listed.
func (k *Keys[K, F]) Awaiting(s slot.Slot) []K {
	return k.ask(s, func(e *entry[K, F]) bool { return e.awaits })
}

// Ready reports whether a key is in the queue and waits for no delay.
func (k *Keys[K, F]) Ready(key K) bool {
	e := k.entries[key]
	return e != nil && e.place.queued && e.place.since > 0
}

// Underway reports whether a key is ready in the queue, with a worker, or in flight.
func (k *Keys[K, F]) Underway(key K) bool {
	e := k.entries[key]
	return e != nil && (e.place.queued && e.place.since > 0 || e.place.taken || e.flight != nil)
}

// Busy reports whether a key is on its way to a reconcile, or in flight.
func (k *Keys[K, F]) Busy(key K) bool {
	e := k.entries[key]
	return e != nil && (e.waits() || e.flight != nil)
}

// Oldest lowers, for each slot, its time in since to the time since which the slot's oldest key has waited for a
// worker.
func (k *Keys[K, F]) Oldest(since map[slot.Slot]time.Duration) {
	for s, of := range k.slots {
		for _, e := range of.entries {
			if before, known := since[s]; e.place.since > 0 && (!known || e.place.since < before) {
				since[s] = e.place.since
			}
		}
	}
}

// Flights calls f for each key in flight.
func (k *Keys[K, F]) Flights(f func(K, Flight[F])) {
	for key, e := range k.flying {
		f(key, *e.flight)
	}
}

// Deleted returns when a deletion in the slot was last reconciled, 0 if never.
func (k *Keys[K, F]) Deleted(s slot.Slot) time.Duration {
	if of := k.slots[s]; of != nil {
		return of.deleted
	}
	return 0
}

// Claim reserves a key's object for an item until Unclaim. It returns false if another item has reserved it.
func (k *Keys[K, F]) Claim(key K, item any) bool {
	e := k.entryOf(key)
	if e.claim == nil {
		e.claim = item
	}
	return e.claim == item
}

// Claimed returns the item for which the object is reserved, or nil.
func (k *Keys[K, F]) Claimed(key K) any {
	if e := k.entries[key]; e != nil {
		return e.claim
	}
	return nil
}

// Unclaim releases the reservation. The object's flight must have ended, or it would be taken for the next item's.
func (k *Keys[K, F]) Unclaim(key K) {
	if e := k.entries[key]; e != nil {
		e.claim = nil
		k.tidy(e)
	}
}

// Forget drops all keys of slots that were lost, together with their failures, except keys in flight.
func (k *Keys[K, F]) Forget(set slot.Set) {
	for _, s := range set.Slots() { // in order: a key that was met in two slots is lost in the last one
		of := k.slots[s]
		if of == nil {
			continue
		}
		for _, e := range of.entries {
			e.place, e.owed, e.awaits = place{}, false, false
			k.tidy(e)
		}
		k.leave(s, of)
	}
	for key, e := range k.failing {
		if set.Has(e.streak.Slot) {
			k.EndStreak(key)
			for one := range k.lapsed { // make room: most of the keys belong to other members by now
				if len(k.lapsed) < ExplainedFailures {
					break
				}
				delete(k.lapsed, one)
			}
			k.lapsed[key] = struct{}{}
		}
	}
	k.sum.forget(func(_ K, s slot.Slot) bool { return set.Has(s) })
}

// Size returns how many keys are remembered, including met and lost ones.
func (k *Keys[K, F]) Size() int {
	n := len(k.entries) + len(k.losses.waiting)
	for _, of := range k.slots {
		if of.met != nil {
			n += len(of.met.keys)
		}
	}
	return n
}
