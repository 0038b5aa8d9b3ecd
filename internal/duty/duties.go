// Package duty runs work that cannot be sharded: functions that one member of a rota runs at a time, each as long as
// the member has the duty's slot. See Rota.Duty for how they begin and end.
package duty

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/slot"
)

// Env is the environment of Duties. Its functions may be called concurrently and do not block.
type Env struct {
	Gate *gate.Gate
	Log  logr.Logger
	// Now returns the monotonic time. After calls a function after a delay, and AfterFunc when a context has ended.
	Now       func() time.Duration
	After     func(wait time.Duration, do func())
	AfterFunc func(ctx context.Context, do func())
	Caches    Caches
	// HeldBack describes what holds slots back.
	HeldBack func(slot.Set) []string
}

// Caches are the caches that duties read.
type Caches interface {
	// LoadDuties returns when the caches show what the duties' former owners wrote, as given by the versions that these
	// left, or when ctx ends.
	LoadDuties(ctx context.Context, cause table.Cause, versions table.Versions)
	ReleaseDuties(slot.Set)
}

// Duties holds the duties that this process has declared, and is the holder of their slots. Its methods may be called
// concurrently.
type Duties struct {
	env Env

	mu sync.Mutex
	of map[string]*Duty
	at map[slot.Slot]*Duty // by slot, from Expect to Shut or Release
}

var _ replica.Blocking = (*Duties)(nil)

// New returns an empty Duties.
func New(env Env) *Duties {
	return &Duties{env: env, of: map[string]*Duty{}, at: map[slot.Slot]*Duty{}}
}

// Declare adds a duty. begin is nil for the rota's own duties, which ask the gate each time.
func (d *Duties) Declare(name string, begin Begin) error {
	if err := table.ValidDuty(name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.of[name] != nil:
		return fmt.Errorf("duty %s: there is one of that name already", name)
	case len(d.of) >= slot.MaxDuties:
		return fmt.Errorf("duty %s: a rota may have %d duties", name, slot.MaxDuties)
	}
	d.of[name] = &Duty{env: &d.env, name: name, begin: begin}
	return nil
}

// Names returns the duties' names in the form of table.Member.Duties.
func (d *Duties) Names() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return table.JoinDuties(slices.Collect(maps.Keys(d.of))...)
}

// Named returns the duty of that name, or nil.
func (d *Duties) Named(name string) *Duty {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of[name]
}

// All returns the duties in the order of their names.
func (d *Duties) All() []*Duty {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*Duty
	for _, name := range slices.Sorted(maps.Keys(d.of)) {
		out = append(out, d.of[name])
	}
	return out
}

// Hold does nothing: duties read informers that do not depend on slots.
func (*Duties) Hold(slot.Set) {}

// Warm implements replica.Blocking.
func (*Duties) Warm(_ context.Context, set slot.Set) (slot.Set, error) { return set, nil }

// Expect records which duty each slot belongs to.
func (d *Duties) Expect(a member.Load, _ bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s, name := range a.Duties {
		if one := d.of[name]; one != nil {
			d.at[s] = one
		}
	}
}

// Load returns when the caches show what the duties' former owners wrote. The rota's own duties do not read caches.
func (d *Duties) Load(ctx context.Context, a member.Load) (slot.Set, error) {
	waits := slices.ContainsFunc(a.Slots.Slots(), func(s slot.Slot) bool {
		one := d.in(s)
		return one == nil || one.begin != nil
	})
	if waits && !a.Held {
		d.env.Caches.LoadDuties(ctx, a.Cause, a.Versions)
	}
	return a.Slots, nil
}

// in returns the duty of a slot of this member, or nil.
func (d *Duties) in(s slot.Slot) *Duty {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at[s]
}

// SlotOf returns the slot of the named duty, if this member has it.
func (d *Duties) SlotOf(name string) (slot.Slot, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s, one := range d.at {
		if one.name == name {
			return s, true
		}
	}
	return 0, false
}

// Open starts the duties of the slots.
func (d *Duties) Open(ctx context.Context, set slot.Set, epoch uint64) (rest func()) {
	d.env.Gate.Open(set, epoch)
	for _, s := range set.Slots() {
		if one := d.in(s); one != nil && one.begin != nil {
			one.open(&term{base: context.WithoutCancel(ctx), slot: s, epoch: epoch})
		}
	}
	return nil
}

// CatchUp implements replica.Blocking.
func (*Duties) CatchUp(context.Context, slot.Set) error { return nil }

// Drain ends the contexts of duties and waits until they have returned.
func (d *Duties) Drain(of replica.Drain) (look func() (more bool)) {
	d.stop(of.Slots, gate.ErrHandover)
	d.env.Gate.Drain(of.Slots, func(slot.Slot) bool { return false }, func(s slot.Slot) { of.Idle(s, nil) })
	return func() bool {
		_, more := of.Review(d.env.Gate, d.env.Now())
		return more
	}
}

// Shut implements replica.Blocking.
func (d *Duties) Shut(set slot.Set) {
	d.env.Gate.Shut(set)
	d.stop(set, gate.ErrLost)
	d.forget(set)
}

// Release implements replica.Blocking.
func (d *Duties) Release(set slot.Set) {
	d.env.Caches.ReleaseDuties(set)
	d.forget(set)
}

// HeldBack implements replica.Blocking.
func (d *Duties) HeldBack(set slot.Set) []string { return d.env.HeldBack(set) }

// Abandon implements replica.Blocking.
func (*Duties) Abandon(slot.Set) {}

// stop ends the terms of the duties in the slots.
func (d *Duties) stop(set slot.Set, cause error) {
	for _, s := range set.Slots() {
		if one := d.in(s); one != nil {
			one.stop(cause)
		}
	}
}

// forget undoes Expect.
func (d *Duties) forget(set slot.Set) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.at {
		if set.Has(s) {
			delete(d.at, s)
		}
	}
}
