// Package store reads and writes the shared state of a rota: the table, in one ConfigMap, and one Lease per member. No
// other package accesses them.
//
// Kubernetes is the real implementation. Package memory is an implementation for tests and the simulator, and storetest
// is the conformance suite that both pass. The package makes no decisions: package member decides what to write and
// what an answer means.
//
// # What a write promises
//
// Every write is sent at most once, and a member.Outcome reports its result. The outcome is OutcomeUnknown whenever the
// request may have reached a server whose answer did not arrive. The API server gives up a write when its timeout,
// counted from the start of the call, and the transit time have passed. That does not bind etcd: when etcd itself was
// stalled, writes that had been given up committed later. So every write here is conditional on the version that it
// replaces, and a late one loses to any later write.
package store
