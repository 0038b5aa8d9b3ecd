// Package ctrlrt makes operators built with controller-runtime run on many replicas at once.
//
// Three changes turn a stock operator into a sharded one: make a rota.Rota, call NewManager instead of ctrl.NewManager,
// and call NewControllerManagedBy instead of ctrl.NewControllerManagedBy for the controllers to shard. Reconcilers,
// predicates, queues, indexes and the client stay as they are. Controllers built with controller-runtime's builder run
// in the same manager and keep its leader election.
//
// The kind that a sharded controller is For is sharded by its objects' own keys:
//
//   - The cache holds this member's share, and List by that controller returns the share. For other callers the API
//     server lists all objects. It refuses a List by an index that it does not support.
//   - The API server answers Get of an object that this member does not own.
//   - The reconciler's context carries the slot's epoch (rota.EpochFrom) and ends when the slot is lost.
//   - When this member gets a slot, it reconciles each of the slot's objects once, recently changed objects first.
//
// A kind that the controller Owns is sharded by the controlling owners of its objects: each child is cached on its
// owner's member. A kind may be For one controller and owned by another. Then it is in two caches, and each controller
// reads from the cache that its events come from.
//
// Every member caches all objects of a kind that the controller Watches: in the manager's cache, or in the cache of
// Manager.Whole if another sharded controller is For that kind. Events that map to objects of other members are
// dropped, since those members get the same events.
//
// Work that cannot be sharded can be a duty, which one member at a time does. NewDutyControllerManagedBy builds such a
// controller, and Manager.AddDuty adds such a runnable. The duties of a rota are spread over its members.
//
// Manager.KeepWhole makes every member cache all objects of a kind. If the kind is only owned, it is then not sharded.
// If a controller is For it, it stays sharded, and the cache of Manager.Whole holds all of its objects as well.
package ctrlrt
