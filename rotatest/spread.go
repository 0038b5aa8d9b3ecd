package rotatest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/cli/orders"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// workload returns the objects that the operator works on: those whose reconciles wrote something. If no write could be
// attributed to a reconcile, it returns all objects that were reconciled.
func (r *run) workload() map[object]bool {
	if all := r.record.reconciled(); len(all) > 0 {
		return all
	}
	return r.reconciles.visited()
}

// slotsOf returns the slots of objects, if their names determine them.
func (k *kit) slotsOf(all map[object]bool) (slots slot.Set) {
	if k.key == slot.KeyUID {
		return slots
	}
	for o := range all {
		slots.Add(k.slots.Of(k.key.Hash(o.key.Namespace, o.key.Name, "")))
	}
	return slots
}

// spread makes both members own objects of the workload. With few objects, one member may own all of them by chance.
func (r *run) spread(ctx context.Context) error {
	slots := r.kit.slotsOf(r.kit.workload)
	if slots.Len() < 2 {
		return nil
	}
	return r.await(ctx, "both members have objects to work on", func(ctx context.Context) (string, error) {
		if waits, err := r.unshared(ctx); waits != "" || err != nil {
			return waits, err
		}
		members := r.working()
		for i, m := range members {
			if !slices.ContainsFunc(slots.Slots(), func(s slot.Slot) bool { return m.gate.Owns(s) }) {
				return m.name + " has the slots of no object", r.swap(ctx, members[(i+1)%len(members)], m, slots)
			}
		}
		return "", nil
	})
}

// swap begins to move every other one of the slots from one member to another, in exchange for as many empty slots. So
// the shares stay even, and no plan moves the slots back.
func (r *run) swap(ctx context.Context, from, to *member, of slot.Set) error {
	_, _, err := orders.Give(ctx, r.kit.store, func(context.Context) (map[string]uint64, error) { return nil, nil },
		func(t *table.Table) error {
			if orders.Moving(t) > 0 {
				return orders.ErrNoChange
			}
			var there, back slot.Set
			for i, s := range of.Slots() {
				if i%2 == 0 {
					there.Add(s)
				}
			}
			owned := t.Owned(to.rota.ID())
			for _, s := range owned.Slots() {
				if int(s) < int(t.Slots) && back.Len() < there.Len() {
					back.Add(s)
				}
			}
			t.Update(there, func(run *table.Run) { run.Next = to.rota.ID() })
			t.Update(back, func(run *table.Run) { run.Next = from.rota.ID() })
			return nil
		})
	if err != nil {
		return fmt.Errorf("give %s objects to work on: %w", to.name, err)
	}
	return nil
}

// shared returns an error if one member worked on everything, so that nothing was tested. If that happened by chance,
// it adds a note instead.
func (r *run) shared() error {
	all := r.workload()
	maps.Copy(all, r.kit.workload)
	if r.reconciles.visitors(all) > 1 {
		return nil
	}
	number := len(all)
	if r.kit.key != slot.KeyUID {
		slots := r.kit.slotsOf(all)
		number = slots.Len()
	}
	if number > 1 {
		r.notef("one member worked on all %d objects, by chance: more Objects make that unlikely", len(all))
		return nil
	}
	text := "only one member had something to do, so nothing was tested"
	if len(all) > 0 {
		text += fmt.Sprintf(": the operator works on %s", slices.Collect(maps.Keys(all))[0])
	}
	if len(all) > 1 {
		text += fmt.Sprintf(" and %d more in the same slot", len(all)-1)
	}
	if r.kit.key == slot.KeyNamespace {
		return errors.New(text + ". All objects of a namespace have one owner: spread Objects over six namespaces or more")
	}
	return errors.New(text + ". Give six or more Objects of the sharded kind")
}
