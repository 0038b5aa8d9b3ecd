// Package queue hands out keys of objects to workers, one worker at a time for each key. It is the work queue of a
// dispatcher: a member that watches objects, stores only keys, and leaves reconciling to workers.
//
// A [Queue] is a pure state machine. It uses no clock, goroutine, I/O or Kubernetes: each method takes the time, and
// [Queue.Actions] returns what to do. So production, the simulation and scripts run the same code.
//
// # The states of a key
//
//	            Change                 due                    Ask
//	(nothing) ─────────▶ waiting ─────────────▶ ready ──────────────────▶ taken
//	    ▲                   ▲    Change, or due   ▲                         │
//	    │                   │                     ├── Release, or changed ──┤
//	    │                   └─── Done: retry, after a time; or it expired ──┤
//	    └──────────────────────────── Done: ok ─────────────────────────────┘
//
// A key that changes while it is waiting or ready is still handed out once. A key that changes while it is taken is
// ready again as soon as the take has ended.
//
// # What a take promises
//
// A take ends when its worker ends it, or at its deadline. Until then no other worker gets the key, provided that its
// worker measures the time from before it asked. A take's deadline is never later than the member's own (rule R2 of
// docs/protocol.md), which is set with [Queue.SetDeadline]. So before another member works on a slot of a dead
// dispatcher, the dispatcher's takes have ended. [Queue.Extend] moves a take's deadline as the member's moves.
//
// # Order
//
// Keys of one kind are handed out by [Class]: new and changed ones first. One in eight comes from the other classes, if
// they have any, so that these are not starved. Within a class namespaces take turns, and within a namespace the key
// that has been ready longest is first. An Ask for several kinds takes from them in turn.
//
// Workers that ask with [Ask.Affine] get the same keys again, while they keep asking: each key prefers one of them, by
// rendezvous hashing (Thaler, Ravishankar: A name-based mapping scheme for rendezvous, 1996). Another worker gets the
// key when it has been ready for [Config.Patience].
//
// # Slots
//
// A slot is held, then open, and may drain. After [Queue.Hold], changes of its objects count, and the owner adds all of
// its objects. Keys are handed out while their slot is open. [Queue.Drain] stops that, and [Drained] reports that
// nothing in the slot is taken any more. [Queue.Shut] drops the slot's keys: its next owner lists its objects. Takes of
// a shut slot are no longer known.
//
// A Queue is not safe for concurrent use.
package queue
