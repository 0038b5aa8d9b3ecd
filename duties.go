package rota

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/slot"
)

// duties are those that this process has declared. It is the holder of their slots.
type duties struct {
	rota *Rota

	mu sync.Mutex
	of map[string]*duty
	at map[slot.Slot]*duty // by slot, from expect to shut or release
}

// declareOwnDuties declares the rota's own duties: the coverage scrub, and the labelling of each kind. Those for which
// there is no room, since a table may have slot.MaxDuties, go by hash slots (ownSlot).
func (r *Rota) declareOwnDuties() {
	var names []string
	if r.reports != nil {
		names = r.account.duties()
	}
	if r.rest != nil {
		for _, kind := range r.share.Kinds() {
			if len(r.share.Labels(kind)) > 0 {
				names = append(names, labelDuty(kind))
			}
		}
	}
	r.duties.mu.Lock()
	defer r.duties.mu.Unlock()
	for _, name := range names {
		if table.ValidDuty(name) == nil && len(r.duties.of) < slot.MaxDuties {
			r.duties.add(&duty{rota: r, name: name})
		}
	}
}

// ownSlot returns the slot whose gate says whether this member does one of the rota's own duties: the duty's, or while
// nobody has the duty a hash slot. That is so while not every member reads of duties, while they are suspended, and
// where the table has no room for them. The hash slot is the one by which releases without duties go, so that the duty
// is done in a rollout from one of these, too. For a moment two members may do it, by different versions of the table.
// Neither labelling nor comparing is harmed by that.
func (r *Rota) ownSlot(name string) (s slot.Slot, ok bool) {
	if s, here := r.duties.slotOf(name); here {
		return s, true
	}
	t := r.tableOf()
	if s, known := t.DutySlot(name); known && t.At(s).Owner != "" {
		return 0, false // it is another member's, or about to come
	}
	namespace := ""
	if kind, labels := strings.CutPrefix(name, labelDuties); labels {
		namespace, name = labelQueue, kind
	}
	return r.cfg.Slots.Of(slot.HashName(namespace, name)), true
}

// doesOwn says whether this member does one of the rota's own duties.
func (r *Rota) doesOwn(name string) bool {
	s, ok := r.ownSlot(name)
	return ok && r.gate.Owns(s)
}

// add needs the lock.
func (d *duties) add(one *duty) {
	if d.of == nil {
		d.of, d.at = map[string]*duty{}, map[slot.Slot]*duty{}
	}
	d.of[one.name] = one
}

// names returns the names in the form of table.Member.Duties.
func (d *duties) names() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return table.JoinDuties(slices.Collect(maps.Keys(d.of))...)
}

func (d *duties) named(name string) *duty {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of[name]
}

// sorted returns the duties in the order of their names.
func (d *duties) sorted() []*duty {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*duty
	for _, name := range slices.Sorted(maps.Keys(d.of)) {
		out = append(out, d.of[name])
	}
	return out
}

// Hold has nothing to do: what duties have is in informers that do not depend on slots.
func (*duties) Hold(slot.Set) {}

func (*duties) Warm(_ context.Context, set slot.Set) (slot.Set, error) { return set, nil }

// Expect notes which duties have which slots.
func (d *duties) Expect(a member.Load, _ bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s, name := range a.Duties {
		if one := d.of[name]; one != nil {
			d.at[s] = one
		}
	}
}

// Load returns when caches show what the duties' former owners wrote. The rota's own duties do not work on caches.
func (d *duties) Load(ctx context.Context, a member.Load) (slot.Set, error) {
	waits := slices.ContainsFunc(a.Slots.Slots(), func(s slot.Slot) bool {
		one := d.in(s)
		return one == nil || one.run != nil
	})
	if waits && !a.Held {
		d.rota.share.LoadDuties(ctx, a.Cause, a.Versions)
	}
	return a.Slots, nil
}

// in returns the duty of a slot that this member has; nil if it has none.
func (d *duties) in(s slot.Slot) *duty {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at[s]
}

// slotOf returns the slot of the duty of that name, if this member has it.
func (d *duties) slotOf(name string) (slot.Slot, bool) {
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
func (d *duties) Open(ctx context.Context, set slot.Set, epoch uint64) (rest func()) {
	d.rota.gate.Open(set, epoch)
	for _, s := range set.Slots() {
		if one := d.in(s); one != nil && one.run != nil {
			one.open(&term{base: context.WithoutCancel(ctx), slot: s, epoch: epoch, over: make(chan struct{})})
		}
	}
	return nil
}

func (*duties) CatchUp(context.Context, slot.Set) error { return nil }

// Drain ends the contexts of duties, and waits until they have returned.
func (d *duties) Drain(of replica.Drain) (look func() (more bool)) {
	d.stop(of.Slots, gate.ErrHandover)
	d.rota.gate.Drain(of.Slots, func(slot.Slot) bool { return false }, func(s slot.Slot) { of.Idle(s, nil) })
	return func() bool {
		_, more := of.Review(d.rota.gate, d.rota.now())
		return more
	}
}

func (d *duties) Shut(set slot.Set) {
	d.rota.gate.Shut(set)
	d.stop(set, gate.ErrLost)
	d.forget(set)
}

func (d *duties) Release(set slot.Set) {
	d.rota.share.ReleaseDuties(set)
	d.forget(set)
}

func (d *duties) HeldBack(set slot.Set) []string { return d.rota.heldBack(set) }

func (*duties) Abandon(slot.Set) {}

// stop ends the terms of the duties in the slots.
func (d *duties) stop(set slot.Set, cause error) {
	for _, s := range set.Slots() {
		if one := d.in(s); one != nil {
			one.stop(cause)
		}
	}
}

// forget takes back expect.
func (d *duties) forget(set slot.Set) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.at {
		if set.Has(s) {
			delete(d.at, s)
		}
	}
}
