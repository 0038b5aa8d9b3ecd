// Package gate admits keys to their reconcilers while their slot is owned, and counts what is in flight.
//
// The Gate is told what it may do (Open, Drain, Shut, SetDeadline) and is asked at every reconcile (Enter). It is
// passive: it starts no goroutine and no timer, and it reads one clock, which is given to it, so that the
// simulator runs the same code. Whoever uses it sees to it that Expire is called at the deadline, and after
// what was decided at a time has been carried out; admission ends at the deadline by itself.
package gate
