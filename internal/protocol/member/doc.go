// Package member is the protocol of one replica as a pure state machine: Step takes an event and returns actions. It
// knows no clock, goroutine, I/O or Kubernetes. So production, the simulator and tests run the same code. The rules
// that comments cite by number are in docs/protocol.md.
//
// Most programs do not need this package: package rota is its caller. This page is for those who write another one;
// packages internal/replica and test/sim are two.
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
//     marked Listed. A deleted table is a version, too: a [Snapshot] without UID.
//   - [LeasesSeen] for what the watch shows that the last [WatchLeases] asked for, with the Serial of that action. An
//     event with another Serial is ignored.
//   - [Lapsed] when the gate has passed its deadline and the member does not know. See below.
//   - [Leave] when the process is told to end. The member then hands over and ends with a [Stop].
//   - The answers to actions. Each action names its answer. Every request gets exactly one answer, also when it
//     failed: the member has at most one renewal, one read and one swap under way, and would wait for ever. Requests
//     for slots ([Warm], [Drain], [Load]) may be answered in parts, or not at all if a later action made them obsolete.
//     A Round tells late answers from current ones.
//
// Events from one watch must keep their order. Otherwise the order between events does not matter. No event may be
// dropped.
//
// # Actions
//
// Carry out the actions of one Step in the order in which they are returned, in three groups:
//
//   - The gate's: [Open], [Shut] and [Deadline] take effect before Step is called again. So does [Stop]. Package gate
//     does what they ask for.
//   - Those on slots: [Hold], [Warm], [Drain], [Load] and [Release] may take long. Start them in order, and keep that
//     order for each slot. Shut cancels what is in flight; a Release follows only when the slot has been shut.
//   - Requests to the API server: [CreateLease], [RenewLease], [ReadTable], [CreateTable], [Swap], [WatchLeases],
//     [DeleteLease] and [ReadLoads] run concurrently with everything else. WatchLeases replaces the watch before it.
//
// [Notify] is for people and has no answer.
//
// Time passes between a Step and its actions. If the gate's deadline passes meanwhile, an Open or a Deadline comes too
// late, and the member takes slots for open that are not. So ask the gate after every Step, and at least every 250 ms
// (gate.Gate.Expire). If it says that it has lapsed, Lapsed is the next event (rule R13).
//
// # Writes
//
//   - Each write is sent once. A client that repeats a request by itself breaks rule R6.
//   - An [Outcome] other than OutcomeUnknown is a promise. OutcomeConflict, OutcomeMissing and OutcomeFailed say that
//     the write did not happen and never will. If in doubt, the outcome is OutcomeUnknown.
//   - A write carries its preconditions (UID and Version) and its Timeout to the API server. RenewLease never creates
//     a Lease.
//   - Renewed.Start is the time before the request was sent, and so is TableSeen.Begun. A time after it makes a member
//     work beyond its lease.
//
// # State
//
// Nothing is persisted by the caller: the table and the Leases are the state. Never reuse an ID or carry anything else
// over from a process that has ended. Objects in the stores may be kept only as long as the member holds their slots.
//
// A process that restarts makes a new Member with a new ID. With the same PodUID and Container it takes the slots of
// its predecessor over without waiting for the lease (rule R9). Until then the table names the predecessor.
//
// # Clocks
//
// [Time] has three clocks. Mono and Late never fall, and Step must not get a time before that of the last Step.
//
//   - Mono is the monotonic clock, which may stand still while the machine sleeps. Waits for others, Wake and
//     TableSeen.Begun are measured by it.
//   - Late is Mono plus the time that the machine slept. The member's own deadline is measured by it: Deadline.At and
//     Renewed.Start. The gate must be given this clock.
//   - Wall is the wall clock. No two members are kept apart by it.
//
// # Threads
//
// A Member is not safe for concurrent use. Call Step, Wake, Ended and ID from one goroutine. Step does not block, and
// takes less than a millisecond with 1,000 members. The goroutines that wait for answers put them into a queue. The
// queue must not block the goroutine that steps, since that one starts requests and watches.
//
// # The end
//
// Stop is the last action, and from then on Step returns nothing ([Member.Ended]). Everything is shut by then. End the
// watches, and wait for what is in flight before the process ends or a new member begins.
//
//   - Err is nil after a graceful leave.
//   - Err wraps [ErrExpelled] if other members hold this one dead, and Rejoin is set. Once nothing is in flight any
//     more, make a new Member with a new ID, and add the old one to Config.Former.
//   - Err wraps [ErrIdentity] if another process has the same identity. A person must repair that.
//   - Any other error tells what is wrong with the table or the Lease. It names the object and what to do. A new
//     member may try again if Rejoin is set.
package member
