// Package group divides the controllers of a program among sets of processes, as the kube-controller-manager's flag
// --controllers does. Each group runs the same program with other patterns, and is a rota of its own. So it has its own
// replicas, memory and processor time.
//
// Parse reads the patterns. With rota.Options.Group the members of all groups announce what they run, and say so when a
// controller is in none of the groups that run, or in two.
package group
