// Package feed brings the objects of one kind from the API server to an informer's store and handlers: the objects of
// the slots that a member holds, and no others. Package delivery decides which slots these are. All informers of a
// member share a Common.
//
// From the API server to a handler, an event passes
//
//	pump (watch.go) -> placement (slots.go) -> flow (flow.go) and package stream -> client-go's informer -> handler
//	(handlers.go)
//
// # How it works
//
// The real SharedIndexInformer is embedded; its ListerWatcher, handlers and transform are wrapped. The wrapper owns the
// watch of the API server and the position in it. The reflector gets a watch of ours. That watch survives lost
// connections; the reflector only gets errors that require a new list (pump.failed). Objects can be injected into it:
// objects of slots gained as ADDED, objects of slots lost as DELETED with a mark. The handlers' wrappers do not pass
// marked deletions on (rule R10).
//
// A marked DELETED of an object that cannot exist is a barrier. client-go's queue keeps the order and hands a DELETED
// of an unknown object to the handlers. So when a barrier reaches them, the store holds everything that was sent before
// it. A feature gate of client-go turns the queue that keeps order off, before v0.36. Then rota.New returns an error.
//
// # No event is lost when slots open
//
// The store changes before handlers are called. Open first flips the slots to open, then reads the store and the
// deletions that were recorded. If a handler dropped an addition, it ran before the flip, so the store shows the
// object. If a handler drops a deletion, it records it under a lock that Open takes after the flip.
//
// # Watches that select
//
// With SlotLabel and ShardSelector the API server sends the objects of some slots only. A watch brings the slots that
// it was opened for, and the stream's position is valid for these. When slots are gained that the watch does not bring,
// a new watch for all slots replaces it, from the same position. Only then are the gained slots listed. The list is
// newer than the position. Events of the gained slots up to the list's version are dropped, as any late event is. When
// slots are lost, the watch stays as it is and narrows when it is opened again for another reason. Every object is
// hashed on arrival (rule R11). So a server that ignores the selector only costs traffic, which Share.Traffic shows.
//
// With ShardSelector, owned kinds are selected by a label: the API server does not hash anything of an owner.
// Share.Stamp returns the label that an object should carry.
//
// With labels an object can leave the watch without being deleted; see look_ups.go.
//
// A ListerWatcher that has its own label selector must join it with the options' selector
// (sharding.JoinSelectors). If it overwrites the options' selector, SlotLabel is a costly Filter.
//
// # Kinds that are primary and owned
//
// ReplicaSets may have their own controller and also be children of Deployments that have one. Such an object has
// two slots: its own and its owner's. Each role has its own informers, made by NewInformer and NewOwnedInformer, and
// its own key in table.Versions: nothing may wait for a version in a stream that does not carry the object.
//
// # Objects that change slots
//
// An object of an owned kind moves to another slot when it gets another owner, and the event shows the new owner only.
// So the stream remembers the slot and the version of each object that it sent. It removes an object whose new slot is
// not held. A list of gained slots cannot bring back an old state of an object that has moved on meanwhile.
//
// If children are selected by a label, owner and label may change together or one after the other:
//
//   - Together: the watch of the old slot shows a DELETED. The look-up finds the object with its new owner. Handlers
//     hear of that state and then of a deletion, as with Filter.
//   - Owner first: the event comes, since the label is still the old one.
//   - Label first: the object stays in the store, and is in doubt.
//
// # Orphans
//
// Objects of an owned kind that have no controlling owner are delivered to every member if AddOrphans was called; see
// slots.go. Such a kind is delivered as with Filter. A handler hears of an adoption, and of its opposite, as an
// update. If the member does not hold the new owner's slot, that update is the last that it hears of the object.
//
// # A kind that is not served
//
// If the API server answers 404 for a kind, slots count as empty of it, so that other kinds are not held up; see
// failing.go.
//
// # Limits
//
// With key UID a store is still keyed by name. If a namesake in another slot replaces an object, later events of the
// replaced object are not sent.
//
// An object whose label is missing or wrong may be in no member's store until the label is right. Options.Mislabelled
// reports such objects when a member receives them. If such an object is in a store, its changes, including a change of
// its owner, come up to a minute late.
package feed
