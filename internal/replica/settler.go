package replica

import (
	"context"
	"sync"

	"github.com/rota-dev/rota/slot"
)

// settler waits until the versions of writes and deletions are known: a slot's next owner needs them to see when its
// informers are new enough (rule R8).
type settler struct {
	writes Writes
	filled chan struct{}

	mu      sync.Mutex
	waiting []settling
}

// settling is a drained slot with the function to call once its versions are known.
type settling struct {
	slot slot.Slot
	then func()
}

func newSettler(writes Writes) *settler {
	return &settler{writes: writes, filled: make(chan struct{}, 1)}
}

// settle calls then once the versions of the writes in a slot are known. It does not block.
func (w *settler) settle(s slot.Slot, then func()) {
	if !w.writes.Unsettled(s) {
		then()
		return
	}
	w.mu.Lock()
	w.waiting = append(w.waiting, settling{s, then})
	w.mu.Unlock()
	select {
	case w.filled <- struct{}{}:
	default:
	}
}

// run waits for all slots that have arrived so far together, until ctx ends.
func (w *settler) run(ctx context.Context) {
	for {
		select {
		case <-w.filled:
		case <-ctx.Done():
			return
		}
		w.mu.Lock()
		waiting := w.waiting
		w.waiting = nil
		w.mu.Unlock()
		var set slot.Set
		for _, one := range waiting {
			set.Add(one.slot)
		}
		w.writes.Settle(ctx, set)
		for _, one := range waiting {
			one.then()
		}
	}
}
