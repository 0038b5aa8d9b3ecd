// Package rota runs a Kubernetes controller on many replicas at once.
//
// Every replica, called a member, works on its own share of the objects: those whose key hashes into the slots
// that it owns. Which member owns which slots stands in one ConfigMap, the table; each member renews one Lease.
// Slots move between live members by a handover (drain, transfer, activate), and are taken from a member that
// stopped renewing. docs/protocol.md has the rules.
//
// Operators built with controller-runtime use package ctrlrt, which wires this package into a manager. Controllers
// of plain client-go use this one: ShareInformer for their SharedInformerFactory, NewQueue for their work queue and
// Work in place of leader election. Below these is what both ways share: New, Run, and a Controller per work queue.
//
// Use it for controllers whose reconciles of different objects are independent of one another. It is of no use
// for work that looks at all objects at once: List from a sharded cache returns this member's share only.
package rota
