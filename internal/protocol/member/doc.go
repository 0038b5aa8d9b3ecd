// Package member implements the protocol of one replica as a pure state machine: Step takes an event and returns
// actions. It uses no clock, goroutine, I/O or Kubernetes, so production, the simulator and tests run the same code.
// The numbered rules that comments cite are in docs/protocol.md.
//
// Most programs do not need this package, since package rota drives it. This page describes how to write another
// driver. Packages internal/replica and test/sim are two examples.
//
// # Creating a member
//
// Fill a [Config], call [Config.SetDefaults] and [Config.Validate], then [New]. All members of a rota must have the
// same Slots and Key, and should have the same durations. Config.Self.ID must be new with every call of New. The first
// event is a [Tick].
//
// # Events
//
// Feed these to Step:
//
//   - [Tick] when [Member.Wake] has come. Wake changes with every Step. An early Tick does no harm. A late one delays
//     whatever was due.
//   - [TableSeen] for every version that a watch of the table shows, from the start and for as long as the member
//     lives. The versions must come in order and without gaps. If the watch restarts, the first version after that is
//     marked Listed. A deleted table is also a version: a [Snapshot] without UID.
//   - [LeasesSeen] for each change that the watch of the last [WatchLeases] shows, with the Serial of that action. An
//     event with another Serial is ignored.
//   - [Lapsed] when the gate has passed its deadline before the member noticed. See below.
//   - [Leave] when the process has to end. The member then hands over and ends with a [Stop].
//   - The answers to actions. Each action documents its answer. Every request gets exactly one answer, even if it
//     failed: the member has at most one renewal, one read and one swap in flight, and would wait forever. Requests
//     for slots ([Warm], [Drain], [Load]) may be answered in parts, or not at all if a later action made them obsolete.
//     A Round distinguishes current answers from late ones.
//
// Events from one watch must keep their order. Otherwise the order between events does not matter. No event may be
// dropped.
//
// # Actions
//
// Carry out the actions of one Step in the order in which they are returned, in three groups:
//
//   - [Open], [Shut] and [Deadline] control the gate and take effect before Step is called again. So does [Stop].
//     Package gate implements them.
//   - [Hold], [Warm], [Drain], [Load] and [Release] apply to slots and may take long. Start them in order, and keep
//     that order for each slot. Shut cancels reconciles in flight. A Release follows only once the slot is shut.
//   - [CreateLease], [RenewLease], [ReadTable], [CreateTable], [Swap], [WatchLeases], [DeleteLease] and [ReadLoads]
//     are requests to the API server and run concurrently with everything else. WatchLeases replaces the current watch.
//
// [Notify] is a message to people and has no answer.
//
// Time passes between a Step and its actions. If the gate's deadline passes meanwhile, an Open or a Deadline comes too
// late, and the member believes that slots are open although they are not. So check the gate after every Step, and at
// least every 250 ms (gate.Gate.Expire). If it has lapsed, Lapsed is the next event (rule R13).
//
// # Writes
//
//   - Each write is sent once. A client that retries requests breaks rule R6.
//   - An [Outcome] other than OutcomeUnknown is a promise. OutcomeConflict, OutcomeMissing and OutcomeFailed mean that
//     the write did not happen and never will. If in doubt, report OutcomeUnknown.
//   - A write carries its preconditions (UID and Version) and its Timeout to the API server. RenewLease never creates
//     a Lease.
//   - Renewed.Start and TableSeen.Begun are times before the request was sent. A later time would make a member work
//     beyond its lease.
//
// # State
//
// The driver persists nothing: the table and the Leases are the state. Never reuse an ID or carry other state over from
// a process that has ended. Stores may keep objects only as long as the member holds their slots.
//
// A process that restarts creates a new Member with a new ID. With the same PodUID and Container it takes over its
// predecessor's slots without waiting for the lease (rule R9). Until then the table names the predecessor.
//
// # Clocks
//
// [Time] has three clocks. Mono and Late never go back, and the time of a Step must not be before the last Step's.
//
//   - Mono is the monotonic clock, which may stand still while the machine sleeps. It measures waits for others, Wake
//     and TableSeen.Begun.
//   - Late is Mono plus the time that the machine slept. It measures the member's own deadline: Deadline.At and
//     Renewed.Start. The gate must use this clock.
//   - Wall is the wall clock. Safety does not depend on it.
//
// # Threads
//
// A Member is not safe for concurrent use. Call Step, Wake, Ended and ID from one goroutine. Step does not block, and
// takes less than a millisecond with 1,000 members. The goroutines that wait for answers put them into a queue. Putting
// an event into the queue must not block the goroutine that calls Step, since it also starts requests and watches.
//
// # The end
//
// Stop is the last action. From then on Step returns nothing ([Member.Ended]) and everything is shut. End the watches,
// and wait until nothing is in flight before the process ends or a new member starts.
//
//   - Err is nil after a graceful leave.
//   - Err wraps [ErrExpelled] if other members hold this one dead, and Rejoin is set. Once nothing is in flight,
//     create a new Member with a new ID, and add the old ID to Config.Former.
//   - Err wraps [ErrIdentity] if another process has the same identity. A person must fix the configuration.
//   - Any other error is about the table or the Lease. It names the object and what to do. A new member may try again
//     if Rejoin is set.
package member
