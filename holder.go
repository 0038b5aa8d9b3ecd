package rota

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/gate"
	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
)

// slotHolder has something of slots: objects, the keys of a dispatcher, or duties. The incarnation tells it what
// becomes of the slots. For one slot, hold and warm may come first, or not at all. expect comes before load, and load
// before open. catchUp and drain may come at any time, and so may shut and release, also while others run. After any of
// them the slot may begin anew, and each may come more than once.
//
// warm, load, catchUp and what open returns are called in goroutines of their own, and so is what drain returns. The
// other methods must not block: who calls them renews the Lease.
type slotHolder interface {
	// hold says that slots may come here: what they have is fetched from now on.
	hold(set slot.Set)
	// warm returns when what the slots have is here, but for the latest changes (rule R8). It is called again if it fails.
	// It returns those of the slots that were not released meanwhile.
	warm(ctx context.Context, set slot.Set) (held slot.Set, err error)
	// expect says that slots were given to this member, so that load comes. later says that something else comes before
	// that: what is fetched now may be old by then.
	expect(a member.Load, later bool)
	// load returns when what the slots have is complete (rule R8). It is called again if it fails, and with another cause
	// if somebody else may have worked meanwhile. It returns those of the slots that were not released meanwhile.
	load(ctx context.Context, a member.Load) (held slot.Set, err error)
	// open begins work on the slots, owned since epoch. It calls off a drain. rest does what takes longer; nil: nothing
	// does.
	open(ctx context.Context, set slot.Set, epoch uint64) (rest func())
	// catchUp returns when everything is known that happened in the slots before the call. If it fails, the slots are
	// drained all the same.
	catchUp(ctx context.Context, set slot.Set) error
	// drain ends work on slots: nothing is begun that can be left to the next owner. look is called every reviewPeriod as
	// long as it returns true.
	drain(d drain) (look func() (more bool))
	// shut says that others may work on the slots from now on.
	shut(set slot.Set)
	// release drops what the slots have.
	release(set slot.Set)
	// heldBack says what keeps some of the slots from moving on, in sentences.
	heldBack(set slot.Set) []string
	// abandon tells of what nobody may do, because this member ends before it has drained the slots.
	abandon(set slot.Set)
}

var (
	_ slotHolder = (*kept)(nil)
	_ slotHolder = (*duties)(nil)
	_ slotHolder = bystander{}
)

// part is those of the slots that a holder has.
type part struct {
	slotHolder
	slots slot.Set
}

// workers are the parts of a member that works. Duties come first: what ends them takes no time.
func (r *Rota) workers() []part {
	return []part{
		{&r.duties, dutySlots(r.cfg.Slots)},
		{&kept{newObjectHolder(r), r.keeper}, r.cfg.Slots.All()},
	}
}

// each calls do for every part that has some of the slots, with these.
func (i *incarnation) each(set slot.Set, do func(p part, its slot.Set)) {
	for _, p := range i.parts {
		if its := set.Intersect(p.slots); !its.Empty() {
			do(p, its)
		}
	}
}

// hashes returns those of the slots that have objects.
func (r *Rota) hashes(set slot.Set) slot.Set {
	return set.Intersect(r.cfg.Slots.All())
}

// dutySlots returns the slots that duties may have.
func dutySlots(count slot.Count) slot.Set {
	first := slot.Slot(count)
	return slot.SetOf(slot.Range{First: first, Last: first + slot.MaxDuties - 1})
}

// stuck returns what the gate calls stuck. A duty counts from the end of its context only.
func (r *Rota) stuck(older time.Duration) []gate.Flight {
	var out []gate.Flight
	for _, f := range r.gate.Stuck(older) {
		if f.Key.Queue == dutyQueue {
			stopped := r.duties.named(f.Key.Name).stoppedAt()
			if f.For = r.now() - stopped; stopped == 0 || f.For < older {
				continue
			}
		}
		out = append(out, f)
	}
	out = append(out, r.keeper.Flights(older)...)
	slices.SortStableFunc(out, func(a, b gate.Flight) int { return cmp.Compare(b.For, a.For) })
	return out
}

// heldBack tells of what has been in flight in the slots for long, and once for each controller of functions.
func (r *Rota) heldBack(set slot.Set) (out []string) {
	tasks := map[string][]gate.Flight{} // by controller: there may be one for each object
	for _, f := range r.stuck(heldBackAfter) {
		switch {
		case !set.Has(f.Slot):
		case f.Task:
			tasks[f.Key.Queue] = append(tasks[f.Key.Queue], f)
		case f.Key.Queue == dutyQueue:
			out = append(out, fmt.Sprintf("duty %s cannot move on: its context ended %v ago, and it has not returned; other "+
				"duties and slots are not held back", f.Key.Name, f.For.Round(time.Second)))
		default: // in a duty's slot it is a labeller's batch
			out = append(out, fmt.Sprintf("slot %d cannot move on: controller %s has been reconciling %s for %v; other "+
				"objects and slots are not held back", f.Slot, f.Key.Queue, nameOfKey(f.Key), f.For.Round(time.Second)))
		}
	}
	for controller, all := range tasks {
		f := all[0]
		out = append(out, fmt.Sprintf("slots cannot move on: %d functions that controller %s has started by rota.Go have "+
			"not returned; that of %s (slot %d) was told to %v ago", len(all), controller, nameOfKey(f.Key), f.Slot,
			f.For.Round(time.Second)))
	}
	return out
}
