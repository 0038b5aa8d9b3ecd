// Package store reads and writes what the members of a rota share: the table, in one ConfigMap, and one Lease per
// member. Nothing else in the project touches them.
//
// Kubernetes is the real implementation, Memory the working twin for tests, simulator and demo; package storetest
// holds the conformance suite that both pass. The package decides nothing: what to write, and what to make of an
// answer, is the business of package member.
//
// # What a write promises
//
// Every write is sent at most once, takes effect at most its timeout after the call began or not at all (but for
// the transit, and for what a stalled etcd may add), and says how it ended by a member.Outcome. OutcomeUnknown is
// the honest answer wherever the request may have reached a server that did not say what became of it.
package store
