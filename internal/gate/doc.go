// Package gate admits keys to their reconcilers while this member owns their slot, and counts what is in flight.
//
// The Gate is told what it may do (Open, Drain, Shut, SetDeadline), and it is asked before every reconcile (Enter). It
// is passive: it starts no goroutine and no timer, and reads only the clock that it is given. So the simulator runs the
// same code. Admission ends at the deadline by itself. The caller must call Expire at the deadline, and after it has
// carried out a decision, since time has passed since the decision was made.
package gate
