package replica

import (
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Turns is what a rota that shares the right to work with others knows of it (rule R20). The member itself knows
// nothing of that. Its methods may be called concurrently, and do not block unless they say so.
type Turns interface {
	// Deadline tells of the member's own deadline.
	Deadline(at time.Duration)
	// Seen tells of a version of the table, or that it is gone (nil).
	Seen(t *table.Table, uid string)
	// Swapping tells of a change of the table that is about to be sent, swapped how it ended.
	Swapping(a member.Swap)
	Swapped(a member.Swapped)

	// Afresh prepares a load. waits says that it must not end before this rota may work. turn is whose it is
	// now, for bring.
	Afresh(a member.Load) (load member.Load, waits bool, turn uint64)
	// Await calls do once this member may work, with whose turn it is, in any goroutine, or before it returns. It never
	// does if the incarnation ends before.
	Await(do func(turn uint64))
	// Complete notes that slots were loaded. It returns false if somebody else may have worked since turn.
	Complete(set slot.Set, turn uint64) bool
	// UpToDate says that what others wrote, when they might work, is in the caches for these slots. If not, their next owner
	// must list them.
	UpToDate(set slot.Set) bool
	// Waiting says what all work waits for; "": for nothing.
	Waiting() string
}

// Always is for a rota that may work whenever its members may.
type Always struct {
	// Set has gate and writes end at a time, on the clock of deadlines. own is that of the member's own Lease.
	Set func(at, own time.Duration)
}

// Deadline sets it.
func (a Always) Deadline(at time.Duration) { a.Set(at, at) }

// Seen does nothing.
func (Always) Seen(*table.Table, string) {}

// Swapping does nothing.
func (Always) Swapping(member.Swap) {}

// Swapped does nothing.
func (Always) Swapped(member.Swapped) {}

// Afresh returns the load as it is.
func (Always) Afresh(a member.Load) (member.Load, bool, uint64) { return a, false, 0 }

// Await calls do.
func (Always) Await(do func(uint64)) { do(0) }

// Complete is true.
func (Always) Complete(slot.Set, uint64) bool { return true }

// UpToDate is true.
func (Always) UpToDate(slot.Set) bool { return true }

// Waiting is empty.
func (Always) Waiting() string { return "" }

// term is the turns of a Replica.
type term interface {
	Turns
	// run does what it takes to get the right to work, in goroutines of the calls.
	run(calls *Calls)
	// end gives up the right to work where this member was the last one. Nothing of it is in flight. It blocks.
	end()
}

// unlimited needs nothing to be done for the right to work.
type unlimited struct{ Always }

func (unlimited) run(*Calls) {}
func (unlimited) end()       {}

var (
	_ term = unlimited{}
	_ term = (*elector)(nil)
)
