package work

import (
	"math"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// How long a drain waits for deletions (rule R15).
const (
	// leaveAfter is for those that it may leave to the slot's next owner. Most are reconciled in that time, which costs
	// nobody else anything. The next owner is in no better position for the others.
	leaveAfter = time.Second
	// DeletionPatience is for the others, while none is reconciled: a deleted object must not hold a slot back for ever.
	// DeletionLimit bounds that wait even if deletions are reconciled: one that keeps failing may be among them.
	DeletionPatience = 10 * time.Second
	DeletionLimit    = 10 * time.Minute
)

// Leftover decides which deletions a drain leaves to the next owners of its slots (rule R15). Its methods must not be
// called concurrently.
type Leftover struct {
	// Of returns all controllers.
	Of func() []*Controller
	// Begun is when the drain began, on the monotonic clock.
	Begun time.Duration
	// Waits are the slots in which deletions are waited for.
	Waits slot.Set
	// Room is for how many bytes of deletions there is room in the table, as counted by table.GoneSize.
	Room int
	// LeaveBy returns when only a part of the time that a leaving member keeps for the handover is left, on the monotonic
	// clock. Without a leave that is math.MaxInt64.
	LeaveBy func(part float64) time.Duration
	// Hopeless reports whether no deletion in a slot will be reconciled here any more.
	Hopeless func(s slot.Slot) bool
}

// Look returns as many slots as there is room for, once the drain has waited long enough for their deletions, which
// are left to the next owners. Slots without room wait until patience ends; then the deletions that do not fit are
// given up.
func (l *Leftover) Look(now time.Duration) (leave slot.Set) {
	if l.Waits.Empty() || now < l.Begun+leaveAfter {
		return leave
	}
	for _, s := range l.Waits.Slots() {
		over := now >= l.patience(s)
		if l.Room == 0 && !over {
			continue
		}
		size := 0
		for _, c := range l.Of() {
			size += table.GoneSize(c.Undone(s))
		}
		if over || size <= l.Room {
			leave.Add(s)
			l.Room -= min(size, l.Room)
		}
	}
	l.Waits = l.Waits.Minus(leave)
	return leave
}

// patience is until when a drain waits for deletions in a slot: as long as some in this slot are reconciled, by any
// controller, but not for ever. A member that leaves does not wait for controllers whose informers have stopped: those
// do not come back, and nothing is reconciled without them.
func (l *Leftover) patience(s slot.Slot) time.Duration {
	if l.LeaveBy(0) != math.MaxInt64 && l.Hopeless(s) {
		return l.Begun + leaveAfter
	}
	last := l.Begun
	for _, c := range l.Of() {
		last = max(last, c.deleted(s))
	}
	return min(last+DeletionPatience, l.Begun+DeletionLimit, l.LeaveBy(0.5))
}

// Fit returns those of the deletions in a slot that its next owner can be told of, since there is room in the table,
// and the others.
func Fit(gone []table.Gone, room int) (fits, abandoned []table.Gone) {
	for _, g := range gone {
		if size := table.GoneSize([]table.Gone{g}); g.Fits() && size <= room {
			room -= size
			fits = append(fits, g)
		} else {
			abandoned = append(abandoned, g)
		}
	}
	return fits, abandoned
}

// Wait reports whether the key of a deleted object waits in the slot, of any controller.
func Wait(of []*Controller, s slot.Slot) bool {
	return slices.ContainsFunc(of, func(c *Controller) bool { return c.Waits(s) })
}
