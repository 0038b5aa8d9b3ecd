// Package ctrlrt makes operators built with controller-runtime run on many replicas at once.
//
// A stock operator becomes a sharded one by three changes: a rota.Rota, NewManager in place of ctrl.NewManager,
// and NewControllerManagedBy in place of ctrl.NewControllerManagedBy for the controllers to be sharded. Reconcilers,
// predicates, queues, indexes and the client stay as they are. Controllers built with controller-runtime's own
// builder live in the same manager and keep its leader election.
//
// For a sharded controller's kind (For):
//
//   - the cache holds this member's share, and List by a sharded controller returns that share only; by anybody else it
//     is answered whole, or refused;
//   - Get of an object that this member does not own is answered by the API server;
//   - the reconciler's context carries the slot's epoch (gate.EpochFrom) and ends when the slot is lost;
//   - when a slot comes, each of its objects is reconciled once: those that changed lately first.
//
// Kinds that it Owns are shared by their controlling owners. Kinds that it Watches are cached whole by every member;
// events that map to objects of other members are dropped, since their owners see them, too. Manager.KeepWhole has
// every member hold all objects of a kind, be it sharded or not.
package ctrlrt
