package feed

import (
	"context"
	"time"
)

const (
	// turnPatience is how long a list waits for another kind's list at most. That one may be answered late, or never.
	turnPatience = 2 * time.Second
	// turnLook is how often a list that waits looks whether it is needed at once.
	turnLook = 50 * time.Millisecond
)

// turns has the lists of a member that works take turns, one kind after the other, while others still work on the slots
// that are listed: what goes through all objects of several kinds at a time takes all processors, and changes of the
// member's own objects wait meanwhile.
type turns struct {
	taken chan struct{} // has a value while a list has its turn
}

func newTurns() turns { return turns{taken: make(chan struct{}, 1)} }

// await waits until no other list has its turn, or until urgent returns true: then the list must not wait. urgent is
// called now and then. The caller calls done.
func (t turns) await(ctx context.Context, urgent func() bool) (done func()) {
	patience := time.NewTimer(turnPatience)
	defer patience.Stop()
	look := time.NewTicker(turnLook)
	defer look.Stop()
	for !urgent() {
		select {
		case t.taken <- struct{}{}:
			return func() { <-t.taken }
		case <-look.C:
		case <-patience.C:
			return func() {}
		case <-ctx.Done():
			return func() {}
		}
	}
	return func() {}
}
