package ledger

import (
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

const (
	// tombstoneTTL is how long the slot of a deleted object is remembered. Controllers that hear of the deletion ask soon.
	// Children that the garbage collector deletes name their owner for a while.
	tombstoneTTL = 10 * time.Minute
	// tombstoneSweep is how many tombstones must be added before old ones are removed again.
	tombstoneSweep = 1024
)

// Tombstones are the slots of deleted primary objects with key UID, by name (rule R15). The zero value is empty. The
// methods may be called concurrently.
type Tombstones struct {
	mu sync.Mutex
	of map[sharding.Subject]tombstone
	// left is how many the last sweep left.
	left int
}

type tombstone struct {
	slot  slot.Slot
	added time.Time
}

// Add notes the slot of a deleted object.
func (t *Tombstones) Add(about sharding.Subject, n slot.Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[sharding.Subject]tombstone{}
	}
	t.of[about] = tombstone{n, time.Now()}
	if len(t.of) < t.left+tombstoneSweep {
		return
	}
	for about, stone := range t.of {
		if time.Since(stone.added) > tombstoneTTL {
			delete(t.of, about)
		}
	}
	t.left = len(t.of)
}

// Find returns the slot of an object that was deleted in the last 10 minutes.
func (t *Tombstones) Find(about sharding.Subject) (slot.Slot, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found, ok := t.of[about]
	if !ok || time.Since(found.added) > tombstoneTTL {
		return 0, false
	}
	return found.slot, true
}

// Forget removes the tombstones of slots that were lost.
func (t *Tombstones) Forget(set slot.Set) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for about, stone := range t.of {
		if set.Has(stone.slot) {
			delete(t.of, about)
		}
	}
}
