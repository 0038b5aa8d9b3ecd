// Package judge judges a run of the demo from records that the members cannot forge: the start and end of every
// reconcile in each process's journal, and the API server's audit log. It is pure: no clock, and no I/O except to read
// the log that it is given.
package judge
