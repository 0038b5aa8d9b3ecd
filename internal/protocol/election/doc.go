// Package election makes a rota as a whole one candidate of a stock leader election, so that replicas with leader
// election and members of a rota never work at the same time (rule R20).
//
// The members hold leader election's Lease together. Its holder is the rota, and each member renews it if no other
// member has done so. The package decides what a member reads and writes, and until when the member may work. It has no
// clock and does no I/O: time and answers are inputs.
//
// Stock replicas (k8s.io/client-go/tools/leaderelection) judge the Lease by its content in whole seconds: holder,
// duration, times, transitions. Its resourceVersion does not count. They take the Lease if it is missing, if it has no
// holder, or if its content has been unchanged, since they first saw it, for the duration in it.
package election
