// Package streamtest has a model of a kind (State and Change), and a Store that a stream fills and that checks what it
// gets. The simulator (package sim) uses both.
//
// Nothing comes back: the store gets no state of a name older than one that it had, and no object that it was sent the
// deletion of.
package streamtest
