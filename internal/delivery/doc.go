// Package delivery gives a member's informers the objects of the slots that the member holds, and no others.
//
// A Share makes informers. Informers of kinds declared by Shard hold only objects whose keys are in the Share's slots.
// Informers of kinds declared by Own hold the objects whose controlling owners are in these slots. All others are stock
// informers. Slots come and go while the informers run, and event handlers do not hear of that:
//
//	         Hold, then Warm                       Load, Open
//	not held ---------------> held, handlers silent ---------> held and open: handlers hear
//	    ^                             |      ^                      |
//	    +---------- Release ----------+      +-------- Shut --------+
//
// Hold begins to list the slots. Warm and Load only wait.
//
// A Share is what the rest of the member sees. Its parts:
//
//   - feed: one kind's path from the API server to the store and the handlers of an informer.
//   - ledger: what this member wrote, for the next owner of a slot and for this member's own reads.
//   - stream: what of an event, a list or a look-up goes to a store. It sends nothing and waits for nothing.
//   - sharding: which slot an object is in, and how to ask for the objects of slots.
//
// # A kind that cannot be listed
//
// Slots open without the kind. Lacks says which objects must not be reconciled until it has been listed; see
// lacking.go.
package delivery
