package memory

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/protocol/election"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/store"
)

var _ store.Elections = (*Client)(nil)

// ReadElection implements store.Elections.
func (c *Client) ReadElection(ctx context.Context, lease types.NamespacedName) (r election.Record, err error) {
	c.memory.count(OpReadElection)
	if err := errors.Join(c.hook(ctx, OpReadElection, false), ctx.Err()); err != nil {
		return r, err
	}
	c.memory.Do(func(*Objects) { r = c.memory.elections[lease] })
	if err := c.hook(ctx, OpReadElection, true); err != nil {
		return election.Record{}, err
	}
	return r, nil
}

// WriteElection implements store.Elections.
func (c *Client) WriteElection(ctx context.Context, lease types.NamespacedName, r election.Record,
	timeout time.Duration,
) (out election.Record, o member.Outcome, err error) {
	o, err = c.write(ctx, OpWriteElection, timeout, func(*Objects) (member.Outcome, string) {
		if c.memory.elections[lease].Version != r.Version {
			return member.OutcomeConflict, "lease " + lease.String()
		}
		c.memory.written++
		out = r
		out.Version = strconv.Itoa(c.memory.written)
		c.memory.elections[lease] = out
		c.memory.wake()
		return member.OutcomeDone, "lease " + lease.String()
	})
	if o != member.OutcomeDone {
		out = election.Record{}
	}
	return out, o, err
}

// DeleteElection deletes the Lease, as somebody does by hand.
func (m *Store) DeleteElection(lease types.NamespacedName) {
	m.Do(func(*Objects) {
		delete(m.elections, lease)
		m.written++
		m.wake()
	})
}

// WatchElection implements store.Elections.
func (c *Client) WatchElection(ctx context.Context, lease types.NamespacedName,
	emit func(version string, r election.Record),
) error {
	m := c.memory
	for failures := 0; ; failures++ {
		m.count(OpWatchElection)
		if c.hook(ctx, OpWatchElection, false) == nil {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(store.Backoff(failures, rand.Float64())):
		}
	}
	told := ""
	for ctx.Err() == nil {
		m.mu.Lock()
		changed, r, version := m.changed, m.elections[lease], strconv.Itoa(m.written)
		m.mu.Unlock()
		if told == "" || told != r.Version {
			told = r.Version
			if r.Version != "" {
				version = r.Version
			}
			emit(version, r)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return ctx.Err()
}
