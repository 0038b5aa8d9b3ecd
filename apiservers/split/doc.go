// Package split divides one kube-controller-manager into several, each with some of its controllers and a leader of
// its own. It computes: it reads and writes no files and talks to no cluster.
//
// A Command is how a kube-controller-manager is started, a Catalog the controllers of its version, and a Group some of
// them. New makes a Plan of these, which gives every controller to exactly one group, or says by name why it cannot.
// Compare says in what running processes differ from a plan.
package split
