package replica

import (
	"maps"
	"slices"
	"sync"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// mailbox collects events for the goroutine that steps the member. put never blocks. Events that can be merged are
// merged, so that a burst takes one step.
type mailbox struct {
	mu     sync.Mutex
	events []member.Event
	// drained holds the slots reported idle, by round.
	drained map[uint64]*idle
	// filled receives a value after a put. The event may already have been taken by then.
	filled chan struct{}
}

// idle holds drained slots and the deletions left in them.
type idle struct {
	slots slot.Set
	gone  []table.Gone
}

func newMailbox() *mailbox {
	return &mailbox{drained: map[uint64]*idle{}, filled: make(chan struct{}, 1)}
}

func (b *mailbox) put(e member.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.events); n > 0 {
		if merged, ok := mergeLeases(b.events[n-1], e); ok {
			b.events[n-1] = merged
			return
		}
	}
	b.events = append(b.events, e)
	b.signal()
}

func (b *mailbox) idle(round uint64, s slot.Slot, gone []table.Gone) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drained[round] == nil {
		b.drained[round] = &idle{}
	}
	b.drained[round].slots.Add(s)
	b.drained[round].gone = append(b.drained[round].gone, gone...)
	b.signal()
}

func (b *mailbox) signal() {
	select {
	case b.filled <- struct{}{}:
	default:
	}
}

func (b *mailbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.events) == 0 && len(b.drained) == 0
}

// take empties the mailbox. versions returns the versions that the next owner of drained slots has to reach.
func (b *mailbox) take(versions func(slot.Set) table.Versions) []member.Event {
	b.mu.Lock()
	events, drained := b.events, b.drained
	b.events, b.drained = nil, map[uint64]*idle{}
	b.mu.Unlock()
	for _, round := range slices.Sorted(maps.Keys(drained)) {
		d := drained[round]
		events = append(events, member.Drained{Slots: d.slots, Round: round, Versions: versions(d.slots), Gone: d.gone})
	}
	return events
}

// mergeLeases merges two reports of one watch if no Lease is in both or gone in either.
func mergeLeases(a, b member.Event) (member.Event, bool) {
	first, ok := a.(member.LeasesSeen)
	if !ok {
		return nil, false
	}
	second, ok := b.(member.LeasesSeen)
	if !ok || second.Complete || first.Watch != second.Watch || len(second.Gone) > 0 || len(first.Gone) > 0 {
		return nil, false
	}
	for _, l := range second.Leases {
		for _, before := range first.Leases {
			if before.ID == l.ID {
				return nil, false // both must be stepped: each is a sign of life
			}
		}
	}
	first.Leases = append(first.Leases[:len(first.Leases):len(first.Leases)], second.Leases...)
	return first, true
}
