// Package bench measures ways to run one operator on several replicas, beside each other: the same reconciler, load and
// control plane, in one run. `make bench` runs it and writes docs/benchmarks.md.
//
// A strategy is a way to run the operator. In a life its replicas start, reconcile a steady load, and then a replica
// comes, one leaves, all are replaced, one is killed and comes back, and one is killed for good. In each round every
// strategy has a life, so that other work on the machine affects all of them.
//
// Package rig provides the control plane, load, operator and processes. This package has the strategies, the scenarios,
// the meters and the page. Its command starts itself again as a replica, see OperatorMain.
package bench
