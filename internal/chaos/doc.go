// Package chaos has a rota work through faults on a real control plane, one after another: members are processes that act as
// ServiceAccounts with tokens bound to Pods, each behind a proxy of its own (package proxy), under a load that never stops.
// After each fault package oracle judges it, from records that members cannot dress up: the API server's audit log, a recording of
// all versions of all objects, the versions of the table, and the journal of each process's reconciles.
//
//	campaign ── run 1: fault ── run 2: fault ── …
//	   │           quiet → load → fault → load → settled? → quiet? → judge
//	   ├── member ── proxy ──┐
//	   ├── member ── proxy ──┼── API servers ── etcd
//	   ├── member ── proxy ──┘        │
//	   ├── load, recorder ────────────┤
//	   └── oracle ◀── journals, audit logs, recording
package chaos
