// Package chaos puts a rota through faults on a real control plane, one after another, under a load that never stops.
// Members are processes that act as ServiceAccounts with tokens bound to Pods, each behind a proxy of its own (package
// proxy). They reconcile Websites, and share two duties. After each fault package oracle judges the run from records
// that members cannot forge: the API servers' audit logs, a recording of all versions of all objects, the versions of
// the table, and each process's journal of reconciles and of runs of duties.
//
//	campaign ── run 1: fault ── run 2: fault ── …
//	   │           quiet → load → fault → load → settled? → quiet? → judge
//	   ├── member ── proxy ──┐
//	   ├── member ── proxy ──┼── API servers ── etcd
//	   ├── member ── proxy ──┘        │
//	   ├── load, recorder ────────────┤
//	   └── oracle ◀── journals, audit logs, recording
package chaos
