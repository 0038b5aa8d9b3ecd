// Package group divides the controllers of a program among several sets of processes, like the
// kube-controller-manager's flag --controllers. Each group runs the same program with different patterns and forms a
// separate rota, with separate replicas, memory and CPU time.
//
// Parse parses the patterns. With rota.Options.Group, the members of all groups announce what they run. They report
// controllers that are in none of the running groups, or in more than one.
package group
