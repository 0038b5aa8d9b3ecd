// Package delivery brings the objects of the slots that a member holds to its informers, and of no others.
//
// A Share makes informers. Those of kinds declared by Shard hold only the objects of the slots that the Share
// holds; the others are stock informers. Slots come and go while the informers run, without a new watch and
// without a word to event handlers:
//
//	          Warm                        Load, Open
//	not held -------> held, handlers silent --------> held and open: handlers hear
//	    ^                     |      ^                     |
//	    +------ Release ------+      +-------- Shut -------+
//
// # How it works
//
// The real SharedIndexInformer is embedded; its ListerWatcher, its handlers and its transform are wrapped. The
// wrapper owns the watch of the API server and its position in it. The reflector gets a watch of ours, which
// survives lost connections (only 410 Gone reaches the reflector) and into which objects can be injected: those
// of slots gained, as ADDED; those of slots lost, as DELETED with a mark by which the handlers' wrappers know
// that they must not pass them on (rule R10). A marked DELETED of an object that cannot exist is a barrier:
// client-go's queue keeps the order and hands a DELETED of an unknown object to the handlers, so when it
// comes out there, the store holds everything before it. That is so since client-go v0.36, where the queue that keeps
// order cannot be turned off.
//
// # No event is lost when slots open
//
// The store changes before handlers are called. Open first flips the slots to open, then reads the store and the
// deletions that went by in silence. A handler that was silent about an addition ran before the flip, so the store shows
// it; a handler that is silent about a deletion records it, under a lock that Open takes after the flip.
//
// # Limits
//
// With key UID a store is still keyed by name: the DELETED of a predecessor that arrives after a list has brought
// its namesake in another held slot removes that one until its next event.
package delivery
