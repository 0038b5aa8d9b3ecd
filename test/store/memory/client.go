package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/store"
)

// Client is what one member sees of a Store.
type Client struct {
	memory *Store
	hook   Hook
}

var _ store.Store = (*Client)(nil)

// ReadTable implements store.Store.
func (c *Client) ReadTable(ctx context.Context) (member.Snapshot, error) {
	c.memory.count(OpReadTable)
	if err := errors.Join(c.hook(ctx, OpReadTable, false), ctx.Err()); err != nil {
		return member.Snapshot{}, err
	}
	var s member.Snapshot
	c.memory.Do(func(o *Objects) { s = o.Table() })
	if s.Missing() {
		s = member.Snapshot{} // as with the real one, nothing tells the version at which it was missing
	}
	if err := c.hook(ctx, OpReadTable, true); err != nil {
		return member.Snapshot{}, err
	}
	return s, nil
}

// CreateTable implements store.Store.
func (c *Client) CreateTable(ctx context.Context, t *table.Table, timeout time.Duration,
) (member.Snapshot, member.Outcome, error) {
	return c.putTable(ctx, OpCreateTable, t, timeout, (*Objects).CreateTable)
}

// SwapTable implements store.Store.
func (c *Client) SwapTable(ctx context.Context, t *table.Table, uid, version string, timeout time.Duration,
) (member.Snapshot, member.Outcome, error) {
	if err := store.Conditional(uid, version); err != nil {
		return member.Snapshot{}, member.OutcomeFailed, err
	}
	return c.putTable(ctx, OpSwapTable, t, timeout, func(o *Objects, t *table.Table) (member.Snapshot, member.Outcome) {
		return o.SwapTable(t, uid, version)
	})
}

func (c *Client) putTable(ctx context.Context, op Op, t *table.Table, timeout time.Duration,
	put func(*Objects, *table.Table) (member.Snapshot, member.Outcome),
) (s member.Snapshot, out member.Outcome, err error) {
	if err := store.Writable(t); err != nil {
		return s, member.OutcomeFailed, err
	}
	// It goes through the text, as with the real one: what does not survive that must not work in tests either.
	stored, err := table.Decode(table.Encode(t))
	if err != nil {
		return s, member.OutcomeFailed, err
	}
	out, err = c.write(ctx, op, timeout, func(o *Objects) (member.Outcome, string) {
		s, out = put(o, stored)
		return out, "the table"
	})
	if out != member.OutcomeDone {
		s = member.Snapshot{}
	}
	return s, out, err
}

// CreateLease implements store.Store.
func (c *Client) CreateLease(ctx context.Context, lease member.Lease, timeout time.Duration,
) (member.Lease, member.Outcome, error) {
	return c.putLease(ctx, OpCreateLease, lease, timeout, (*Objects).CreateLease)
}

// RenewLease implements store.Store.
func (c *Client) RenewLease(ctx context.Context, lease member.Lease, timeout time.Duration,
) (member.Lease, member.Outcome, error) {
	if err := store.Conditional(lease.UID, lease.Version); err != nil {
		return member.Lease{}, member.OutcomeFailed, err
	}
	return c.putLease(ctx, OpRenewLease, lease, timeout, (*Objects).RenewLease)
}

func (c *Client) putLease(ctx context.Context, op Op, lease member.Lease, timeout time.Duration,
	put func(*Objects, member.Lease) (member.Lease, member.Outcome),
) (l member.Lease, out member.Outcome, err error) {
	out, err = c.write(ctx, op, timeout, func(o *Objects) (member.Outcome, string) {
		l, out = put(o, lease)
		return out, "the lease of " + lease.ID
	})
	if out != member.OutcomeDone {
		l = member.Lease{}
	}
	return l, out, err
}

// DeleteLease implements store.Store.
func (c *Client) DeleteLease(ctx context.Context, id, uid, version string, timeout time.Duration,
) (member.Outcome, error) {
	if uid != "" {
		if err := store.Conditional(uid, version); err != nil {
			return member.OutcomeFailed, err
		}
	}
	out, err := c.write(ctx, OpDeleteLease, timeout, func(o *Objects) (member.Outcome, string) {
		return o.DeleteLease(id, uid, version), "the lease of " + id
	})
	if uid == "" && out == member.OutcomeUnknown {
		out = member.OutcomeFailed // it was only a read
	}
	return out, err
}

// Notify implements store.Store.
func (c *Client) Notify(_ context.Context, n member.Notify) {
	c.memory.count(OpNotify)
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	c.memory.notes = append(c.memory.notes, n)
}

// NotifyNow implements store.Store.
func (c *Client) NotifyNow(ctx context.Context, n member.Notify) { c.Notify(ctx, n) }

// Close implements store.Store: nothing is open.
func (c *Client) Close() {}

func (c *Client) write(ctx context.Context, op Op, timeout time.Duration,
	effect func(*Objects) (member.Outcome, string),
) (member.Outcome, error) {
	if timeout <= 0 {
		return member.OutcomeFailed, fmt.Errorf("%s: no time left", op)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c.memory.count(op)
	err := c.hook(ctx, op, false)
	switch {
	case errors.Is(err, ErrLost) || ctx.Err() != nil:
		return member.OutcomeUnknown, fmt.Errorf("%s: %w", op, errors.Join(err, ctx.Err()))
	case err != nil:
		return member.OutcomeFailed, fmt.Errorf("%s: %w", op, err)
	}
	var out member.Outcome
	var what string
	c.memory.Do(func(o *Objects) { out, what = effect(o) })
	if err := errors.Join(c.hook(ctx, op, true), ctx.Err()); err != nil {
		return member.OutcomeUnknown, fmt.Errorf("%s: %w", op, err)
	}
	switch out { //nolint:exhaustive // the other outcomes need no error
	case member.OutcomeConflict:
		return out, fmt.Errorf("%s: %s exists, or is not the version expected", op, what)
	case member.OutcomeMissing:
		return out, fmt.Errorf("%s: %s is missing", op, what)
	}
	return out, nil
}
