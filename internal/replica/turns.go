package replica

import (
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Turns tracks whether the rota may work, for a rota that takes turns with others (rule R20). The member does not know
// about turns. Methods may be called concurrently. They do not block unless noted.
type Turns interface {
	// Deadline sets the member's own deadline.
	Deadline(at time.Duration)
	// Seen reports a version of the table, nil if the table is gone.
	Seen(t *table.Table, uid string)
	// Swapping reports a change of the table that is about to be sent, and Swapped its outcome.
	Swapping(a member.Swap)
	Swapped(a member.Swapped)

	// PrepareLoad adjusts a load to the current turn. waits is true if the load must not end before this rota may work.
	// turn is the current turn, for bring.
	PrepareLoad(a member.Load) (load member.Load, waits bool, turn uint64)
	// Await calls do with the current turn once this member may work, in any goroutine, possibly before Await returns. It
	// does not call do if the incarnation ends first.
	Await(do func(turn uint64))
	// Complete records that slots were loaded. It returns false if another rota or a leader may have worked since turn.
	Complete(set slot.Set, turn uint64) bool
	// UpToDate reports whether the caches show, for these slots, everything that others wrote while they might work. If
	// not, the slots' next owner must list them.
	UpToDate(set slot.Set) bool
	// Waiting describes what all work waits for, empty if work goes on.
	Waiting() string
}

// Always is the Turns of a rota that may work whenever its members may.
type Always struct {
	// Set sets when the gate and writes end, on the deadline clock. own is the deadline from the member's own Lease.
	Set func(at, own time.Duration)
}

// Deadline calls Set.
func (a Always) Deadline(at time.Duration) { a.Set(at, at) }

// Seen does nothing.
func (Always) Seen(*table.Table, string) {}

// Swapping does nothing.
func (Always) Swapping(member.Swap) {}

// Swapped does nothing.
func (Always) Swapped(member.Swapped) {}

// PrepareLoad returns the load unchanged.
func (Always) PrepareLoad(a member.Load) (member.Load, bool, uint64) { return a, false, 0 }

// Await calls do at once.
func (Always) Await(do func(uint64)) { do(0) }

// Complete returns true.
func (Always) Complete(slot.Set, uint64) bool { return true }

// UpToDate returns true.
func (Always) UpToDate(slot.Set) bool { return true }

// Waiting returns an empty string.
func (Always) Waiting() string { return "" }

// term is Turns with a life cycle, as a Replica uses it.
type term interface {
	Turns
	// run acquires and keeps the right to work, in goroutines of the calls.
	run(calls *Calls)
	// end gives up the right to work if this member was the last one. Nothing is in flight any more. It blocks.
	end()
}

// unlimited always has the right to work.
type unlimited struct{ Always }

func (unlimited) run(*Calls) {}
func (unlimited) end()       {}

var (
	_ term = unlimited{}
	_ term = (*elector)(nil)
)
