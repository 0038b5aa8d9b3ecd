package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/duty"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// workers returns the parts of a member that works. Duties come first because ending their contexts takes no time.
func (r *Engine) workers(calls *replica.Calls) []replica.Part {
	return []replica.Part{
		{Holder: replica.Wait(r.duties, calls), Slots: dutySlots(r.cfg.Slots)},
		{Holder: replica.Wait(r.holder(), calls), Slots: r.cfg.Slots.All()},
	}
}

// holder returns the holder of the slots of objects.
func (r *Engine) holder() *controllers.Holder {
	return controllers.NewHolder(controllers.HolderEnv{
		Controllers: r.controllers, Keeper: r.keeper, HeldBackBy: r.heldBack, Abandoned: r.metrics.abandoned.Inc,
		Inherited: r.metrics.inherited.Inc,
	})
}

// inFlight returns how many reconciles, writes and dispatched keys are in flight.
func (r *Engine) inFlight() int { return r.gate.InFlight() + len(r.keeper.Flights(0)) }

// hashes returns the slots of set that contain objects, without the slots of duties.
func (r *Engine) hashes(set slot.Set) slot.Set {
	return set.Intersect(r.cfg.Slots.All())
}

// dutySlots returns the slots that duties may use.
func dutySlots(count slot.Count) slot.Set {
	first := slot.Slot(count)
	return slot.SetOf(slot.Range{First: first, Last: first + slot.MaxDuties - 1})
}

// ownerLeaves reports whether the owner of a slot is leaving.
func (r *Engine) ownerLeaves(n slot.Slot) bool {
	t := r.state.Table()
	if t == nil {
		return false
	}
	owner, _ := t.Member(t.At(n).Owner)
	return owner.Leaving
}

// receiversAhead returns how many other members come before this one, in the order of IDs, among those to which slots
// are on their way and that do not have the slots' objects yet.
func (r *Engine) receiversAhead() int {
	t, id := r.state.Table(), r.ID()
	if t == nil {
		return 0
	}
	ahead := map[string]struct{}{}
	for _, run := range t.Runs {
		if run.Next != "" && run.Next < id && !run.Ready && !t.IsDuty(run.Slots.First) {
			ahead[run.Next] = struct{}{}
		}
	}
	return len(ahead)
}

// stuck returns what the gate reports as stuck. A duty counts only from the time its context ended.
func (r *Engine) stuck(older time.Duration) []gate.Flight {
	var out []gate.Flight
	for _, f := range r.gate.Stuck(older) {
		if f.Key.Queue == duty.Queue {
			stopped := r.duties.Named(f.Key.Name).StoppedAt()
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

// heldBack describes what has held back the slots for long, with one line for all rota.Go functions of a controller.
func (r *Engine) heldBack(set slot.Set) (out []string) {
	tasks := map[string][]gate.Flight{} // by controller: each object may have one
	for _, f := range r.stuck(replica.HeldBackAfter) {
		switch {
		case !set.Has(f.Slot):
		case f.Task:
			tasks[f.Key.Queue] = append(tasks[f.Key.Queue], f)
		case f.Key.Queue == duty.Queue:
			out = append(out, fmt.Sprintf("duty %s cannot move on: its context ended %v ago, and it has not returned; other "+
				"duties and slots are not held back", f.Key.Name, f.For.Round(time.Second)))
		case f.Key.Queue == controllers.ProgramQueue:
			out = append(out, fmt.Sprintf("slot %d cannot move on: the program %s was asked to give it up %v ago, and has not "+
				"finished with it", f.Slot, f.Key.Name, f.For.Round(time.Second)))
		default: // in a duty's slot it is a batch of the labeller
			out = append(out, fmt.Sprintf("slot %d cannot move on: controller %s has been reconciling %s for %v; other "+
				"objects and slots are not held back", f.Slot, f.Key.Queue, work.NameOfKey(f.Key), f.For.Round(time.Second)))
		}
	}
	for controller, all := range tasks {
		f := all[0]
		out = append(out, fmt.Sprintf("slots cannot move on: %d functions that controller %s has started by rota.Go have "+
			"not returned; the context of the one for %s (slot %d) ended %v ago", len(all), controller, work.NameOfKey(f.Key),
			f.Slot, f.For.Round(time.Second)))
	}
	return out
}
