package replica

import (
	"time"

	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// turns is what a rota that shares the right to work with others knows of it (rule R20). The member itself knows
// nothing of that. Its methods may be called concurrently, and do not block unless they say so.
type turns interface {
	// run does what it takes to get the right to work, in goroutines of the calls.
	run(calls *Calls)
	// end gives up the right to work where this member was the last one. Nothing of it is in flight. It blocks.
	end()

	// deadline tells of the member's own deadline.
	deadline(at time.Duration)
	// seen tells of a version of the table, or that it is gone (nil).
	seen(t *table.Table, uid string)
	// swapping tells of a change of the table that is about to be sent, swapped how it ended.
	swapping(a member.Swap)
	swapped(a member.Swapped)

	// afresh prepares a load. waits says that it must not end before this rota may work. turn is whose it is
	// now, for bring.
	afresh(a member.Load) (load member.Load, waits bool, turn uint64)
	// await calls do once this member may work, with whose turn it is, in any goroutine, or before it returns. It never
	// does if the incarnation ends before.
	await(do func(turn uint64))
	// complete notes that slots were loaded. It returns false if somebody else may have worked since turn.
	complete(set slot.Set, turn uint64) bool
	// knows says that what others wrote, when they might work, is in the caches for these slots. If not, their next owner
	// must list them.
	knows(set slot.Set) bool
	// waiting says what all work waits for; "": for nothing.
	waiting() string
}

// always is for a rota that may work whenever its members may.
type always struct {
	set func(at, own time.Duration)
}

func (always) run(*Calls)                                       {}
func (always) end()                                             {}
func (a always) deadline(at time.Duration)                      { a.set(at, at) }
func (always) seen(*table.Table, string)                        {}
func (always) swapping(member.Swap)                             {}
func (always) swapped(member.Swapped)                           {}
func (always) afresh(a member.Load) (member.Load, bool, uint64) { return a, false, 0 }
func (always) await(do func(uint64))                            { do(0) }
func (always) complete(slot.Set, uint64) bool                   { return true }
func (always) knows(slot.Set) bool                              { return true }
func (always) waiting() string                                  { return "" }

var (
	_ turns = always{}
	_ turns = (*elector)(nil)
)
