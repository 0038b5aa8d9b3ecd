// Package rota runs a Kubernetes controller on many replicas at once.
//
// Every replica, called a member, works on its own share of the objects: those whose key hashes into the slots that it
// owns. One ConfigMap, the table, says which member owns which slots. Each member renews a Lease, and writes what it
// holds into a second one, its report. Slots move between live members by a handover (plan, warm, drain, transfer,
// activate), and are taken from a member that stopped renewing. docs/how-it-works.md explains it in ten minutes, and
// docs/protocol.md has the rules.
//
// Use it for controllers whose reconciles of different objects are independent of one another. It is of no use
// for work that looks at all objects at once: List from a sharded cache returns this member's share only.
//
// # Operators built with controller-runtime
//
// They use package [github.com/rota-dev/rota/ctrlrt], which wires this package into a manager:
//
//	r, err := rota.New(cfg, rota.Options{Name: "website"})
//	mgr, err := ctrlrt.NewManager(cfg, r, ctrl.Options{})
//	err = ctrlrt.NewControllerManagedBy(mgr).For(&webv1.Website{}).Complete(reconciler)
//
// # Controllers of plain client-go
//
// They use this package: [ShareInformer] for their SharedInformerFactory, [NewQueue] for their work queue,
// [Rota.WrapConfig] for the client that writes, and [Rota.Work] in place of leader election. The example of the package
// is such a controller.
//
// # What cannot be sharded
//
// [Rota.Duty] is for what must run once: a loop, or a whole controller. One member at a time does it, and the duties
// of a rota are spread over its members.
//
// # What a member tells
//
// [Rota.Status] is a snapshot, [Rota.Ready] a readiness check, and [Rota.Collector] has the metrics. [Rota.Owns] says
// whether an object is this member's. Inside a reconcile, [EpochFrom] returns a fencing token for systems outside
// Kubernetes.
//
// # Beside this package
//
//   - [github.com/rota-dev/rota/fence]: the policy by which the API server refuses late writes.
//   - [github.com/rota-dev/rota/group]: divides the controllers of a program among sets of processes.
//   - [github.com/rota-dev/rota/dispatch/client] and [github.com/rota-dev/rota/dispatch/reconciler]: workers that take
//     keys from dispatchers instead of sharing a cache.
//   - [github.com/rota-dev/rota/slot]: which slot an object is in.
package rota
