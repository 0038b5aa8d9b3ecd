// Package work has the keys of controllers whose objects are sharded. Keys knows what becomes of each, and is pure: it
// has no lock, no clock and no channel, and whoever drives it says what happens, and when. A Controller drives it, on
// the way of a key from the queue through the gate and back.
package work

import (
	"time"

	"github.com/rota-dev/rota/slot"
)

// Keys are the keys of one controller, each with all that is known of it. A key is known while it waits, is in flight
// or is claimed, and while its last reconcile has failed. Methods must not be called concurrently.
//
// K names an object of the controller's kind. F is what the driver attaches to a flight.
//
// A key waits in one slot at a time: in the queue, with a worker, owed to the slot, or for a kind to be listed. If it
// comes to another slot, since there is a namesake, it goes on waiting there, but is owed no more. A flight stays in
// the slot in which it was admitted, and a failure in that of its reconcile.
//
// Drivers begin each step of a key's way before they end the former: a slot must not seem to be done with a deletion
// that is about to wait elsewhere.
type Keys[K comparable, F any] struct {
	entries map[K]*entry[K, F]
	slots   map[slot.Slot]*inSlot[K, F]
	// flying and ailing are the entries with a flight and with an ailment: few, of many.
	flying, ailing map[K]*entry[K, F]
	// lapsed are keys that ailed when their slot was lost, up to ExplainedAilments.
	lapsed map[K]struct{}
	sum    sum[K]
	losses losses[K]
}

// inSlot is what is known of a slot.
type inSlot[K comparable, F any] struct {
	// entries are those that wait in the slot.
	entries map[K]*entry[K, F]
	// deleted is when a deletion was last reconciled; 0: never.
	deleted time.Duration
	// opened is when it was last opened; 0: never.
	opened time.Duration
	// met is what is known of the keys that were reconciled here since the slot came; nil if nobody asks.
	met *met[K]
}

// entry is one key.
type entry[K comparable, F any] struct {
	key   K
	slot  slot.Slot
	place place
	// arrived says that the worker that took it got it because its slot came.
	arrived bool
	// listed says that it is among the entries of its slot.
	listed bool
	// owed keys are enqueued when their slot opens: keys of deleted objects that could not be reconciled since the gate
	// was shut, and keys that were added while their slot was on its way here. No object leads to the former any more, and
	// the latter would come late.
	owed bool
	// awaits says that it waits for a kind to be listed.
	awaits bool
	// claim is the item whose worker syncs the object.
	claim any
	// flight is not nil while it is in flight.
	flight *Flight[F]
	// ailment is not nil if its last reconcile failed.
	ailment *Ailment
}

// place says where a waiting key is. It may be in the queue again while a worker has it.
type place struct {
	queued, taken bool
	// since is when it became ready for a worker; 0: it waits for a delay to end.
	since time.Duration
	// arrives says that it is in the queue because its slot came, and not because of a change.
	arrives bool
}

// Flight is a key that was admitted.
type Flight[F any] struct {
	Slot slot.Slot
	// Gone says that its object was gone when it was admitted.
	Gone bool
	// Arrived says that it is reconciled because its slot came, and not because of a change. Beside is how many others
	// were in flight when it began. Begin sets it.
	Arrived bool
	Beside  int
	// Ended says that its result is known, and Err is the result.
	Ended bool
	Err   error
	// With is the driver's own.
	With F
}

// NewKeys returns an empty set of keys.
func NewKeys[K comparable, F any]() *Keys[K, F] {
	return &Keys[K, F]{
		entries: map[K]*entry[K, F]{}, slots: map[slot.Slot]*inSlot[K, F]{},
		flying: map[K]*entry[K, F]{}, ailing: map[K]*entry[K, F]{}, lapsed: map[K]struct{}{},
		losses: losses[K]{called: map[K]struct{}{}},
	}
}

// at returns the entry of a key, which is in slot s from now on. Whoever changes it calls tidy.
func (k *Keys[K, F]) at(s slot.Slot, key K) *entry[K, F] {
	e := k.entryOf(key)
	if e.slot != s { // it is new, or there is a namesake now
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

// in returns what is known of a slot. There are few slots: none is forgotten.
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

// tidy lists an entry in its slot as long as it waits, and forgets it if nothing is worth remembering.
func (k *Keys[K, F]) tidy(e *entry[K, F]) {
	switch {
	case !e.waits():
		k.unlist(e)
		if e.flight == nil && e.claim == nil && e.ailment == nil {
			delete(k.entries, e.key)
		}
	case !e.listed:
		k.in(e.slot).entries[e.key] = e
		e.listed = true
	}
}

// waits says that the key is on its way to a reconcile.
func (e *entry[K, F]) waits() bool { return e.place != place{} || e.owed || e.awaits }

// Slot returns the slot of a key that waits or is in flight. With slot.KeyUID nothing else may tell it any more.
func (k *Keys[K, F]) Slot(key K) (s slot.Slot, known bool) {
	e := k.entries[key]
	if e == nil || !e.waits() && e.flight == nil {
		return 0, false
	}
	return e.slot, true
}

// Queue notes that a key enters the queue. ready is the time if a worker may have it at once, and 0 if it waits for a
// delay to end.
func (k *Keys[K, F]) Queue(s slot.Slot, key K, ready time.Duration) {
	e := k.at(s, key)
	if e.place.queued = true; e.place.since == 0 {
		e.place.since = ready
	}
	k.tidy(e)
}

// Arrive notes that a key is in the queue because its slot came.
func (k *Keys[K, F]) Arrive(key K) {
	if e := k.entries[key]; e != nil && e.place.queued {
		e.place.arrives = true
	}
}

// Take notes that a worker got the key from the queue. It reports whether it was in the queue, and since when it was
// ready there; 0: it waited for a delay to end, or arrived.
func (k *Keys[K, F]) Take(s slot.Slot, key K) (since time.Duration, queued bool) {
	e := k.at(s, key)
	if queued, e.arrived = e.place.queued, e.place.arrives; !e.arrived {
		since = e.place.since
	}
	e.place = place{taken: true}
	k.tidy(e)
	return since, queued
}

// Arrived says that a worker has the key because its slot came, and not because of a change.
func (k *Keys[K, F]) Arrived(key K) bool {
	e := k.entries[key]
	return e != nil && e.place.taken && e.arrived
}

// Drop notes that the worker does not have the key any more, and reports whether it had. It may be in the queue again.
func (k *Keys[K, F]) Drop(s slot.Slot, key K) (had bool) {
	e := k.at(s, key)
	had, e.place.taken = e.place.taken, false
	k.tidy(e)
	return had
}

// Owe has the key enqueued when its slot opens. Paid takes that back.
func (k *Keys[K, F]) Owe(s slot.Slot, key K) {
	e := k.at(s, key)
	e.owed = true
	k.tidy(e)
}

// Paid notes that a key need not be enqueued when its slot opens.
func (k *Keys[K, F]) Paid(key K) {
	if e := k.entries[key]; e != nil {
		e.owed = false
		k.tidy(e)
	}
}

// Opened notes that slots are open since now, and returns the keys that were owed to them.
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

// OpenedSince returns when the slot of a key in flight was last opened; 0: never.
func (k *Keys[K, F]) OpenedSince(key K) (opened time.Duration, flies bool) {
	e := k.flying[key]
	if e == nil {
		return 0, false
	}
	return k.in(e.flight.Slot).opened, true
}

// Await has the key wait for a kind to be listed.
func (k *Keys[K, F]) Await(s slot.Slot, key K) {
	e := k.at(s, key)
	e.awaits = true
	k.tidy(e)
}

// Complete returns the keys that waited for kinds, in slots that lack none now.
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

// Begin notes that a key is in flight from now on. One key has one flight at a time.
func (k *Keys[K, F]) Begin(key K, f Flight[F]) {
	e := k.at(f.Slot, key)
	f.Beside = len(k.flying)
	e.flight, k.flying[key] = &f, e
	k.tidy(e)
}

// Result notes the result of a key in flight; nil is success. The first of several with weak counts, unless one without
// comes.
func (k *Keys[K, F]) Result(key K, err error, weak bool) {
	if e := k.flying[key]; e != nil && !(weak && e.flight.Ended) {
		e.flight.Ended, e.flight.Err = true, err
	}
}

// End notes that a key is not in flight any more, and returns its flight.
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

// Ended notes what is known once a flight has ended: whole says that it was not cut short, and gone that its object is
// gone now. It comes after the key was owed again, if need be.
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

// ask returns the keys in a slot of which is says so.
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

// Waiting returns the keys in a slot that are in the queue or with a worker, and not in flight.
func (k *Keys[K, F]) Waiting(s slot.Slot) []K {
	return k.ask(s, func(e *entry[K, F]) bool { return e.place != place{} })
}

// Undone returns the keys in a slot that are on their way to a reconcile and not in flight.
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

// Oldest puts since when the oldest key of each slot has been waiting for a worker into since, where that is earlier.
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

// Deleted is when a deletion in the slot was last reconciled; 0: never.
func (k *Keys[K, F]) Deleted(s slot.Slot) time.Duration {
	if of := k.slots[s]; of != nil {
		return of.deleted
	}
	return 0
}

// Claim says whether an item may be synced, as far as other items about the same object go. It is so until Unclaim.
func (k *Keys[K, F]) Claim(key K, item any) bool {
	e := k.entryOf(key)
	if e.claim == nil {
		e.claim = item
	}
	return e.claim == item
}

// Claimed returns the item whose worker syncs the object; nil: there is none.
func (k *Keys[K, F]) Claimed(key K) any {
	if e := k.entries[key]; e != nil {
		return e.claim
	}
	return nil
}

// Unclaim ends what Claim began. The object's flight must have ended before, or it would be taken for that of the next
// item.
func (k *Keys[K, F]) Unclaim(key K) {
	if e := k.entries[key]; e != nil {
		e.claim = nil
		k.tidy(e)
	}
}

// Forget drops all keys of slots that were lost, but for those in flight, and what is known of their failures.
func (k *Keys[K, F]) Forget(set slot.Set) {
	for s, of := range k.slots {
		if !set.Has(s) {
			continue
		}
		for _, e := range of.entries {
			e.place, e.owed, e.awaits = place{}, false, false
			k.tidy(e)
		}
		k.leave(s, of)
	}
	for key, e := range k.ailing {
		if set.Has(e.ailment.Slot) {
			k.Heal(key)
			for one := range k.lapsed { // another one gives way: most of them are other members' by now
				if len(k.lapsed) < ExplainedAilments {
					break
				}
				delete(k.lapsed, one)
			}
			k.lapsed[key] = struct{}{}
		}
	}
	k.sum.forget(func(_ K, s slot.Slot) bool { return set.Has(s) })
}

// Size is how many keys are remembered, those that were met and lost included.
func (k *Keys[K, F]) Size() int {
	n := len(k.entries) + len(k.losses.waiting)
	for _, of := range k.slots {
		if of.met != nil {
			n += len(of.met.keys)
		}
	}
	return n
}
