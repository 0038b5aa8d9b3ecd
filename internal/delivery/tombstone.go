package delivery

import (
	"sync"
	"time"

	"github.com/rota-dev/rota/slot"
)

const (
	// tombstoneTTL is how long the slot of a deleted object is remembered. Controllers that hear of the deletion ask soon.
	// Children that the garbage collector deletes name their owner for a while.
	tombstoneTTL = 10 * time.Minute
	// tombstoneSweep is how many tombstones must be added before old ones are removed again.
	tombstoneSweep = 1024
)

// tombstones are the slots of deleted objects with key UID, by name (rule R15).
type tombstones struct {
	mu sync.Mutex
	of map[subject]tombstone
	// left is how many the last sweep left.
	left int
}

type tombstone struct {
	slot  slot.Slot
	added time.Time
}

func (t *tombstones) add(about subject, n slot.Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[subject]tombstone{}
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

func (t *tombstones) find(about subject) (slot.Slot, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found, ok := t.of[about]
	if !ok || time.Since(found.added) > tombstoneTTL {
		return 0, false
	}
	return found.slot, true
}

// forget removes the tombstones of slots that were lost.
func (t *tombstones) forget(set slot.Set) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for about, stone := range t.of {
		if set.Has(stone.slot) {
			delete(t.of, about)
		}
	}
}

// noteTombstone remembers the slot of a deleted primary object: with key UID its name does not tell.
func (i *informer) noteTombstone(about subject, n slot.Slot) {
	if i.role.primary && i.share.key == slot.KeyUID && i.share.Holds(n) {
		i.share.tombstones.add(about, n)
	}
}

// noteGoneOwner remembers the slot of an owner that no store has, as its child tells it: with key UID the owner's name
// does not.
func (i *informer) noteGoneOwner(about subject, n slot.Slot) {
	if i.share.key != slot.KeyUID || !i.share.Holds(n) {
		return
	}
	if _, stored := i.share.Stored(about.kind, about.name); !stored {
		i.share.tombstones.add(about, n)
	}
}
