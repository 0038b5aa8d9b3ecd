// Package store reads and writes what the members of a rota share: the table, in one ConfigMap, and one Lease per
// member. Nothing else in the project touches them.
//
// Kubernetes is the real implementation. Package memory has a working one for tests and the simulator, and storetest
// the conformance suite that both pass. The package decides nothing: package member decides what to write, and what an
// answer means.
//
// # What a write promises
//
// Every write is sent at most once, and a member.Outcome says how it ended. The outcome is OutcomeUnknown whenever the
// request may have reached a server that did not say what became of it. The API server gives up on a write at most its
// timeout after the call began, plus transit. That is no bound for etcd: when etcd itself had stood still, a write that
// was given up committed later. So every write here is conditional on what it replaces, and a late one loses to
// whatever was written since.
package store
