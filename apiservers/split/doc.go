// Package split divides one kube-controller-manager into several, each with some of its controllers and its own leader
// election. It only computes: it does not access files or a cluster.
//
// A Command is the command line of a kube-controller-manager, a Catalog the controllers of its version, and a Group
// some of them. New turns these into a Plan, which assigns every controller to exactly one group, or returns an error
// that names the problems. Compare returns the differences between running processes and a plan.
package split
