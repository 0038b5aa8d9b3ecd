// Package explore searches small worlds of production members exhaustively, for what breaks the protocol.
//
// A world is an API server with a table and Leases, two or three pods, and what is on its way between them. The members
// are member.Member itself, stepped with whole ticks of a clock; tables, plans and all decisions are those of
// production. What may happen next is an act: deliver one thing to one member, let a store answer, let a tick pass,
// start, leave, or a fault. Search goes through every order of acts from a beginning, breadth first, and checks every
// one of them (check.go). Then Settle shows that no state is a dead end.
//
// # What makes it finite
//
//   - All times are relative to now; what lies further back than any wait asks for stays there. Versions, epochs and
//     serials are renamed by rank, since they are only compared. What is never looked at again is left out. See
//     normal.go, and state.go of package member for what each number means. TestNumbers shows for many states that
//     other numbers lead to the same ones.
//   - All durations are whole ticks: a lease has 4, the deadline is 3, a write lasts 1, the fence 2, renewals come
//     every tick. What production derives from them by division, jitter among it, is 0: it happens at once, in any
//     order.
//   - Bounded: faults, starts, restarts, leaves, and incarnations of a pod, as the Scope says.
//   - Time does not pass while something is on its way that does not lag, or a timer is due. So whatever takes longer
//     than a tick is a fault: a pause of any length, a lag of any length of one kind of news, a request of unknown
//     outcome, which takes effect at any later time or never. A Lazy scope's stores and reconciles take any time
//     without that.
//   - What comes to one member comes in the order in which it was sent, watches and answers alike, and what lags by
//     itself; in a Free scope in any order. Between members there is no order.
//   - A request takes effect when it is sent, unless it goes astray.
//
// # What it cannot see
//
// Clocks that run at different rates, a pause between two actions of one step but for what a gate makes of it (lapse),
// more than three members, the wall clock (memories of crashes never fade, and epochs of new tables are always above
// all others), keys and objects, the content of what a handover passes on but for the name of one deletion, and
// whatever needs more faults than the scopes have. Package sim looks at those, by chance rather than exhaustively. A
// backlog of renewals that say the same is delivered as its last one.
//
// What a member may still write when its gate is shut is bounded from above instead of being modelled by single writes:
// see box.horizon and box.gun. With a fence (rule R7), that is.
package explore
