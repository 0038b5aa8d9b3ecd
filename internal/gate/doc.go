// Package gate admits keys to their reconcilers while this member owns their slot, and counts what is in flight.
//
// The caller controls the Gate (Open, Drain, Shut, SetDeadline) and asks it before every reconcile (Enter). The Gate is
// passive: it starts no goroutine and no timer, and reads only the clock that it is given, so the simulator runs the
// same code. Admission ends at the deadline without a call. The caller must call Expire at the deadline, and again
// after carrying out a decision, since time has passed since the decision was made.
package gate
