// Package delivery brings the objects of the slots that a member holds to its informers, and of no others.
//
// A Share makes informers. Those of kinds declared by Shard hold only the objects of the slots that the Share
// holds, those of kinds declared by Own the objects whose controlling owners lie in these slots; the others are stock
// informers. Slots come and go while the informers run, without a word to event handlers:
//
//	          Warm                        Load, Open
//	not held -------> held, handlers silent --------> held and open: handlers hear
//	    ^                     |      ^                     |
//	    +------ Release ------+      +-------- Shut -------+
//
// # How it works
//
// The real SharedIndexInformer is embedded; its ListerWatcher, its handlers and its transform are wrapped. The wrapper
// owns the watch of the API server and its position in it. The reflector gets a watch of ours, which survives lost
// connections (the reflector hears of what a list has to put right: pump.failed) and into which objects can be
// injected: those of slots gained, as ADDED; those of slots lost, as DELETED with a mark by which the handlers'
// wrappers know that they must not pass them on (rule R10). A marked DELETED of an object that cannot exist is a
// barrier: client-go's queue keeps the order and hands a DELETED of an unknown object to the handlers, so when it comes
// out there, the store holds everything before it. That is so since client-go v0.36, where the queue that keeps order
// cannot be turned off.
//
// # No event is lost when slots open
//
// The store changes before handlers are called. Open first flips the slots to open, then reads the store and the
// deletions that went by in silence. A handler that was silent about an addition ran before the flip, so the store
// shows it; a handler that is silent about a deletion records it, under a lock that Open takes after the flip.
//
// # Watches that select
//
// With SlotLabel and ShardSelector the API server sends the objects of some slots only. A watch brings those that it
// was asked for when it was opened, and the position of the stream holds for these. So a watch that does not bring the
// slots gained is replaced by one over all, from the position, before they are listed: the list is newer than the
// position, and what the new watch tells of the gained slots up to the list's version is dropped like any late event.
// Nothing happens to the watch when slots are lost; it narrows when it is opened again for another reason. Every object
// is hashed on arrival (rule R11), so a server that ignores the selector costs traffic, which Share.Traffic shows, and
// nothing else.
//
// Owned kinds are selected by a label with ShardSelector, too: the API server hashes nothing of an owner. Share.Stamp
// tells what label an object should carry.
//
// With labels an object can leave the watch without being deleted: see confirm.go.
//
// A ListerWatcher with a label selector of its own has to join it with that of the options: JoinSelectors. One that
// overwrites it makes SlotLabel a costly Filter.
//
// # Kinds that are primary and owned
//
// ReplicaSets may have a controller of their own and be children of Deployments that have one, too. Such an object has
// two slots, its own and its owner's. Each role has informers of its own, NewInformer's and NewOwnedInformer's, and a
// key of its own in table.Versions: a stream that does not carry an object must not be waited for until it shows it.
//
// # Objects that change slots
//
// An object of an owned kind goes to another slot when it gets another owner, and the event shows the new one only. The
// stream therefore knows the slot and the version of each that it has sent: those that leave are removed,
// and a list of slots that are gained cannot bring back an older state of one that went elsewhere meanwhile.
//
// Where children are selected by a label, owner and label change together or one after the other. Together, the watch
// of the old slot shows a DELETED; the look-up that confirms it finds the object with its new owner, and the old one
// hears of that and of a deletion, as it does with Filter. If the owner changes first the event comes, since the label
// is still the old one's. If the label changes first the object stays in the store as one in doubt.
//
// # Orphans
//
// Objects of an owned kind without a controlling owner are delivered to every member where AddOrphans was called: see
// orphan.go. Such a kind is delivered as with Filter. A handler hears of an adoption, and of its opposite, as an
// update; in a member that does not hold the new owner's slot that is the last it hears of the object.
//
// # A kind that is not served
//
// Where the API server answers 404 for a kind, slots count as empty of it, so that the others are not held up; see
// absent.go.
//
// # A kind that cannot be listed
//
// Slots open without it, and Lacks says on what nobody may work until it is there: see lacking.go.
//
// # Limits
//
// With key UID a store is still keyed by name. A namesake in another slot takes the place of its predecessor, of which
// nothing that comes later is sent.
//
// An object whose label is missing or wrong may be in nobody's store until the label is right: Options.Mislabelled
// reports those that somebody receives. The changes of one that is in a store come late, by up to a minute, changes of
// its owner included.
package delivery
