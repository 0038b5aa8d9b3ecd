// Package rota runs a Kubernetes controller on many replicas at once.
//
// Every replica is a member, and works on its own share of the objects: those whose keys hash into its slots. One
// ConfigMap, the table, records which member owns which slots. Each member renews a Lease, and publishes the slots that
// it holds in a second Lease, its report. A handover moves slots between live members (plan, warm, drain, transfer,
// activate). The slots of a member that stopped renewing are taken from it. docs/how-it-works.md is an introduction,
// and docs/protocol.md has the rules.
//
// Use it for controllers that reconcile each object independently of the others. Do not use it for work that needs all
// objects at once: List from a sharded cache returns this member's share only.
//
// # Operators built with controller-runtime
//
// Use package [github.com/rota-dev/rota/ctrlrt], which wires this package into a manager:
//
//	r, err := rota.New(cfg, rota.Options{Name: "website"})
//	mgr, err := ctrlrt.NewManager(cfg, r, ctrl.Options{})
//	err = ctrlrt.NewControllerManagedBy(mgr).For(&webv1.Website{}).Complete(reconciler)
//
// # Controllers of plain client-go
//
// Use this package: [ShareInformer] with a SharedInformerFactory, [NewQueue] for the work queue, [Rota.WrapConfig] for
// the client that writes, and [Rota.Work] instead of leader election. The package example is such a controller.
//
// # What cannot be sharded
//
// [Rota.Duty] is for work that must run once: a loop, or a whole controller. One member at a time runs it. The duties
// of a rota are spread over its members.
//
// # Status
//
// [Rota.Status] returns a snapshot, [Rota.Ready] is a readiness check, and [Rota.Collector] returns the metrics.
// [Rota.Owns] reports whether this member owns an object. Inside a reconcile, [EpochFrom] returns a fencing token for
// systems outside Kubernetes.
//
// # Related packages
//
//   - [github.com/rota-dev/rota/fence]: the admission policy with which the API server refuses late writes.
//   - [github.com/rota-dev/rota/group]: divides the controllers of a program among sets of processes.
//   - [github.com/rota-dev/rota/dispatch/client] and [github.com/rota-dev/rota/dispatch/reconciler]: workers that take
//     keys from dispatchers instead of sharing a cache.
//   - [github.com/rota-dev/rota/slot]: maps objects to slots.
package rota
