// Package stream decides which of a kind's events, listed objects and look-ups go into the store of a share, and when
// the store is complete for a slot.
//
// It is pure: no clock, no goroutine, no lock, no request. Package delivery is its interpreter: it sends the requests,
// hands over what comes back, and sends to the store what Stream returns, in that order. The simulator runs the same
// code against a model of an API server.
//
// # The ledger
//
// Events come in order, but a list of some slots, or a look-up of one object, may be ahead of them or behind. Each is a
// statement about a name at a version, and at any version at most one object has a name. So the ledger keeps the latest
// version seen of each name, and the state at that version: the store has the object (here), a look-up has to find out
// whether it still exists (doubt), or the store does not have it (gone, or elsewhere: in a slot that the stream does
// not carry). A statement about an earlier version is stale, whatever its source.
//
// Not every kind needs the ledger for every object. Where an object's name determines its slot, events of slots that
// are being listed wait for the list. Afterwards the slot has a floor, the version of its list, and events up to the
// floor are older than the list. The ledger then only holds doubts, and results of look-ups that are ahead of the
// stream. With Config.Moves it holds every object, since any may change its slot. With Config.Namesakes it holds the
// objects that are sent while a list may be out of order.
//
// # What the caller does
//
//   - It calls all methods under one lock, and sends what they return before it calls Advance with the event's version.
//   - One goroutine sends. It alone calls Event, Stored, Item, Missing, Release and LookedUp.
//   - When the reflector stops reading halfway, it lists the whole kind again: Begin, List.Shows, Commit.
package stream
