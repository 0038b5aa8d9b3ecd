package explore

import "github.com/rota-dev/rota/member"

// Scope is a small world, and what may happen in it.
type Scope struct {
	Name string
	// Pods and Slots are how many there are.
	Pods, Slots int
	// Deadline, Settle and Join are Config.RenewDeadline, SettleDelay and JoinDelay in ticks; a lease has 4.
	Deadline, Settle, Join int
	// Lazy: warming, loading and draining may take for ever.
	Lazy bool
	// Free: all that is on its way to a member may overtake each other, but for the events of one watch. Otherwise only
	// what lags is overtaken.
	Free bool
	// Running is how many pods have joined and settled before the search begins.
	Running int
	// Faults is how many faults may happen in all; Limits how many actions of each bounded kind.
	Faults uint8
	Limits [kinds]uint8
	// Without leaves clauses of the protocol out.
	Without member.Clause
}
