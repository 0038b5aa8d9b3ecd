// Package ctrlrt makes operators built with controller-runtime run on many replicas at once.
//
// A stock operator becomes a sharded one by three changes: make a rota.Rota, call NewManager instead of
// ctrl.NewManager, and call NewControllerManagedBy instead of ctrl.NewControllerManagedBy for the controllers to shard.
// Reconcilers, predicates, queues, indexes and the client stay as they are. Controllers built with controller-runtime's
// own builder run in the same manager and keep its leader election.
//
// The kind that a sharded controller is For is split by its objects' own keys:
//
//   - The cache holds this member's share, and List by that controller returns the share. The API server answers List
//     by anybody else with all objects; a List by an index that it does not know is refused.
//   - The API server answers Get of an object that this member does not own.
//   - The reconciler's context carries the slot's epoch (rota.EpochFrom) and ends when the slot is lost.
//   - When a slot comes, each of its objects is reconciled once. Those that changed lately come first.
//
// A kind that it Owns is split by the controlling owners of its objects: children are cached where their owner is. A
// kind may be For one controller and Owned by another; then it is in two caches, and each controller reads from the one
// that its events come from.
//
// A kind that it Watches is cached whole by every member: in the manager's cache, or in the cache of Manager.Whole
// where another sharded controller is For that kind. Events that map to objects of other members are dropped, since
// those members get them, too.
//
// What cannot be sharded can be a duty, which one member at a time does: NewDutyControllerManagedBy builds such a
// controller, and Manager.AddDuty adds such a runnable. The duties of a rota are spread over its members.
//
// Manager.KeepWhole has every member cache all objects of a kind. A kind that is only owned is not split then. One that
// a controller is For stays split, and the cache of Manager.Whole holds all of it besides.
package ctrlrt
