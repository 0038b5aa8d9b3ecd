// Package judge judges what replicas did from records that they cannot forge: the start and end of every reconcile in
// each process's journal, the API servers' audit logs, the versions of the table, and a recording of all versions of
// all objects. It is pure: it has no clock, and reads nothing but the logs that it is given. It shares no code with
// replicas, except to compute a key's slot and to decode a table.
//
// Parts answer one question each, for a scenario that counts on its own: Overlaps, Log.Foreign, Log.MoveWrites,
// Latencies, History.Moves, TakenOver, TakeOverlaps and others. Judge takes all Evidence of a run with faults, and
// returns a Verdict.
package judge
