// Package explore searches small worlds of production members exhaustively for violations of the protocol.
//
// A world has an API server with a table and Leases, two or three pods, and what is on its way between them. The
// members are member.Member itself, stepped with whole ticks of a clock. Tables, plans and all decisions are those of
// production. An act is what may happen next: one thing is delivered to one member, a store answers, a tick passes, a
// pod starts or leaves, or a fault happens. Search goes through every order of acts, breadth first, and checks each one
// (check.go). Then Settle shows that no state is a dead end.
//
// # What makes it finite
//
//   - All times are relative to now. A time further back than any wait needs stays there. Versions, epochs and serials
//     are renamed by rank, since they are only compared. What is never used again is left out. normal.go does this, and
//     state.go of package member says what each number means. TestNumbers shows for many states that other numbers lead
//     to the same states.
//   - All durations are whole ticks: a lease has 4, the deadline is 3, a write lasts 1, the fence 2, and renewals come
//     every tick. What production derives from them by division, such as jitter, is 0: it happens at once, in any
//     order.
//   - Faults, starts, restarts, leaves and incarnations of a pod are bounded, as the Scope says.
//   - Time does not pass while a timer is due, or while something is on its way that does not lag. So whatever takes
//     longer than a tick is a fault: a pause of any length, a lag of any length of one kind of news, or a request of
//     unknown outcome, which takes effect at any later time or never. In a Lazy scope stores and reconciles take any
//     time, without a fault.
//   - What is sent to one member arrives in order, watches and answers alike. What lags has an order of its own. In a
//     Free scope the order is any. Between members there is no order.
//   - A request takes effect when it is sent, unless it goes astray.
//
// # What it cannot see
//
//   - Clocks that run at different rates, and the wall clock: memories of crashes never fade, and epochs of new tables
//     are always above all others.
//   - A pause between two actions of one step, but for what a gate makes of it (lapse).
//   - More than three members.
//   - Keys and objects, and what a handover passes on, but for the name of one deletion.
//   - Whatever needs more faults than the scopes have.
//
// Package sim looks at those, by chance rather than exhaustively. A backlog of renewals that say the same is delivered
// as its last one.
//
// The writes that a member may still send when its gate is shut are not modeled one by one. They are bounded from
// above: see box.horizon and box.gun, which assume a fence (rule R7).
package explore
