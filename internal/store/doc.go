// Package store reads and writes what the members of a rota share: the table, in one ConfigMap, and one Lease per
// member. Nothing else in the project touches them.
//
// Kubernetes is the real implementation, Memory the working twin for tests, simulator and demo; package storetest
// holds the conformance suite that both pass. The package decides nothing: what to write, and what to make of an
// answer, is the business of package member.
//
// # What a write promises
//
// Every write is sent at most once and says how it ended by a member.Outcome; OutcomeUnknown is the honest answer
// wherever the request may have reached a server that did not say what became of it. The API server gives up on a
// write at most its timeout after the call began, transit excepted. That is no bound for etcd: where etcd itself
// stood still, a write given up on was seen to be committed when it went on. So every write here is conditional on
// what it replaces, and a late one loses to whatever was written since.
package store
