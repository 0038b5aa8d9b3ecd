// Package election makes a rota as a whole one candidate of a stock leader election, so that replicas with leader
// election and members of a rota never work at the same time (rule R20).
//
// The members hold leader election's Lease together. Its holder is the rota, and each member renews it if it finds that
// nobody else has. Package election decides what a member reads and writes, and until when the member may work. It has
// no clock and does no I/O: time and answers are inputs.
//
// Stock replicas (k8s.io/client-go/tools/leaderelection) judge the Lease by what it says, in whole seconds: holder,
// duration, times, transitions. Its resourceVersion does not count. They take the Lease if it is missing, if it has no
// holder, or if it has said the same since they first saw that, for as long as it says that it lasts.
package election
