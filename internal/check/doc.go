// Package check judges a run of the demo from records that the members cannot dress up: the start and end of every
// reconcile in each process's journal, and the API server's audit log. It is pure: no clock, no I/O but the reading of
// the log that it is given.
package check
