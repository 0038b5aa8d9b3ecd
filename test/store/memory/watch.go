package memory

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/store"
)

// WatchTable implements store.Store.
func (c *Client) WatchTable(ctx context.Context, emit func(s member.Snapshot, listed bool)) error {
	return c.follow(ctx, OpWatchTable,
		func(o *Objects) func() {
			s := o.Table()
			return func() { emit(s, true) }
		},
		func(change Change) bool { return change.Table != nil },
		func(change Change) {
			emit(*change.Table, false)
		})
}

// WatchLeases implements store.Store.
func (c *Client) WatchLeases(ctx context.Context, all bool, ids []string, emit func(store.Leases)) error {
	watched := func(id string) bool { return all || slices.Contains(ids, id) }
	return c.follow(ctx, OpWatchLeases,
		func(o *Objects) func() {
			seen := store.Leases{Complete: true}
			for _, lease := range o.Leases() {
				if watched(lease.ID) {
					seen.Leases = append(seen.Leases, lease)
				}
			}
			return func() { emit(seen) }
		},
		func(change Change) bool {
			return change.Gone != "" && watched(change.Gone) || change.Lease != nil && watched(change.Lease.ID)
		},
		func(change Change) {
			if change.Gone != "" {
				emit(store.Leases{Gone: []string{change.Gone}})
				return
			}
			emit(store.Leases{Leases: []member.Lease{*change.Lease}})
		})
}

// follow is Kubernetes.follow in memory: first the state, then the changes, and the state again if changes are lost.
func (c *Client) follow(ctx context.Context, op Op, state func(*Objects) func(), wanted func(Change) bool,
	emit func(Change),
) error {
	m := c.memory
	position, listed, failures := uint64(0), false, 0
	for {
		m.count(op)
		if err := c.hook(ctx, op, false); err != nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(store.Backoff(failures, rand.Float64())):
			}
			failures++
			continue
		}
		failures = 0
		m.mu.Lock()
		breaks := m.breaks
		m.mu.Unlock()
		for ctx.Err() == nil {
			var first func()
			var changes []Change
			m.mu.Lock()
			if m.breaks != breaks {
				m.mu.Unlock()
				break
			}
			changed := m.changed
			if listed {
				changes, listed = m.objects.Since(position)
			}
			if !listed {
				first, listed = state(m.objects), true
			}
			changes = slices.DeleteFunc(slices.Clone(changes), func(c Change) bool { return !wanted(c) })
			position = m.objects.Version()
			m.counts.Events += len(changes)
			m.mu.Unlock()
			if first != nil {
				first()
			}
			for _, change := range changes {
				if ctx.Err() == nil {
					emit(change)
				}
			}
			select {
			case <-ctx.Done():
			case <-changed:
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
