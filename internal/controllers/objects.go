package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// objectHolder is the part of Holder for objects: the informers' shares and the controllers' keys.
type objectHolder struct {
	HolderEnv
	env *Env

	mu sync.Mutex
	// handed holds the slots that were loaded here after their former owner handed them over.
	handed slot.Set
	// gathering holds channels that are closed when the objects of opened slots are enqueued, in the order of Open.
	gathering []chan struct{}
}

func (o *objectHolder) Hold(set slot.Set) { o.env.Share.Hold(set) }

func (o *objectHolder) Warm(ctx context.Context, set slot.Set) (slot.Set, error) {
	return o.held(set, func(set slot.Set) error { return o.env.Share.Warm(ctx, set) })
}

func (o *objectHolder) Expect(a member.Load, later bool) {
	if a.Cause == table.CauseHanded || a.Held || later {
		o.env.Share.Hold(a.Slots)
	} else {
		o.env.Share.HoldAnew(a.Slots)
	}
	o.mu.Lock()
	if handed(a) {
		o.handed = o.handed.Union(a.Slots)
	} else {
		o.handed = o.handed.Minus(a.Slots)
	}
	o.mu.Unlock()
	o.Inherit(a.Gone)
}

// handed reports whether the former owner of slots drained them and handed them over.
func handed(a member.Load) bool { return a.Cause == table.CauseHanded && !a.Held }

func (o *objectHolder) Load(ctx context.Context, a member.Load) (slot.Set, error) {
	if !handed(a) { // the cause may have changed since Expect: others may have worked
		o.mu.Lock()
		o.handed = o.handed.Minus(a.Slots)
		o.mu.Unlock()
	}
	return o.held(a.Slots, func(set slot.Set) error {
		return o.env.Share.Load(ctx, set, a.Cause, a.Versions, a.Held)
	})
}

// held calls do with the slots that are still held, and repeats it until none is released meanwhile.
func (o *objectHolder) held(set slot.Set, do func(slot.Set) error) (slot.Set, error) {
	for {
		err := do(set)
		if !errors.Is(err, delivery.ErrReleased) {
			return set, err
		}
		if set = set.Intersect(o.env.Share.Held()); set.Empty() {
			return set, nil
		}
	}
}

// Open enqueues the slots' objects, recently changed ones first. Objects of slots that were handed over come as fast as
// workers take them.
func (o *objectHolder) Open(ctx context.Context, set slot.Set, epoch uint64) (rest func()) {
	o.env.Share.OpenToReads(set) // before callers see that the member owns the slots
	parked := o.env.Gate.Open(set, epoch)
	o.env.Share.Unmute(set)
	done := make(chan struct{})
	o.mu.Lock()
	handed := o.handed.Intersect(set)
	o.gathering = append(o.gathering, done)
	o.mu.Unlock()
	run := o.env.Runner
	return func() {
		var arrivals []<-chan struct{}
		gathered := run.Go(func() {
			o.gather(handed, nil, func(c *Controller, rest []types.NamespacedName) {
				arrivals = append(arrivals, run.Go(func() { c.Trickle(ctx, rest) }))
			})
		})
		o.gather(set.Minus(handed), parked, func(c *Controller, rest []types.NamespacedName) {
			c.Enqueue(rest, work.PriorityOpened)
		})
		run.Wait(gathered)
		o.mu.Lock()
		o.gathering = slices.DeleteFunc(o.gathering, func(other chan struct{}) bool { return other == done })
		o.mu.Unlock()
		close(done)
		for _, arrived := range arrivals {
			run.Wait(arrived)
		}
	}
}

// gather enqueues the objects of opened slots, and calls others with those that are not urgent.
func (o *objectHolder) gather(set slot.Set, parked []gate.Key, others func(*Controller, []types.NamespacedName)) {
	if set.Empty() && len(parked) == 0 {
		return
	}
	opened := o.env.Share.Gather(set)
	for _, c := range o.Controllers.All() {
		others(c, c.Opened(set, opened[c.Kind], parked))
	}
}

// gathered returns when all objects of slots that were opened before the call are enqueued.
func (o *objectHolder) gathered() {
	o.mu.Lock()
	pending := slices.Clone(o.gathering)
	o.mu.Unlock()
	for _, done := range pending {
		o.env.Runner.Wait(done)
	}
}

func (o *objectHolder) Drain(d replica.Drain) (look func() (more bool)) {
	controllers := o.Controllers.Works()
	left := &work.Leftover{Of: o.Controllers.Works, Begun: o.env.Now(), Waits: d.Slots, Room: d.Room, LeaveBy: d.LeaveBy,
		Hopeless: o.hopeless}
	o.env.Gate.Drain(d.Slots, func(s slot.Slot) bool { return work.Wait(controllers, s) },
		func(s slot.Slot) { d.Idle(s, o.Undone(s, d.Room)) })
	for _, c := range controllers {
		c.Hurry(d.Slots)
	}
	return func() bool {
		if leave := left.Look(o.env.Now()); !leave.Empty() {
			o.env.Gate.LeaveGone(leave)
		}
		parked, more := d.Review(o.env.Gate, o.env.Now())
		for _, c := range o.Controllers.Works() {
			c.Resume(parked)
		}
		return more
	}
}

// silence stops handlers from receiving the slots' events.
func (o *objectHolder) silence(set slot.Set) {
	o.env.Share.Shut(set)
	for _, c := range o.Controllers.Works() {
		c.Silence(set)
	}
}

func (o *objectHolder) Release(set slot.Set) {
	o.env.Share.Release(set)
	for _, c := range o.Controllers.All() {
		c.Forget(set)
	}
}

// Abandon logs deletions that were not reconciled.
func (o *objectHolder) Abandon(set slot.Set) {
	for _, s := range set.Slots() {
		o.Undone(s, 0)
	}
}

// HeldBack includes deletions that hold slots back.
func (o *objectHolder) HeldBack(set slot.Set) (out []string) {
	if text := o.heldByDeletions(set); text != "" {
		out = append(out, text)
	}
	return append(out, o.HeldBackBy(set)...)
}

// hopeless reports whether all deletions in a slot belong to controllers whose informers have stopped.
func (o *objectHolder) hopeless(s slot.Slot) bool {
	share := o.env.Share
	return len(share.Ended()) > 0 && !slices.ContainsFunc(o.Controllers.All(), func(c *Controller) bool {
		return !share.Stale(c.Kind) && c.Work.Waits(s)
	})
}

// heldByDeletions describes the deletions that keep some of the slots from moving, or returns "".
func (o *objectHolder) heldByDeletions(set slot.Set) string {
	var held slot.Set
	var example string
	for _, s := range set.Slots() {
		if !o.env.Gate.AdmitsGone(s) {
			continue // no drain waits for them
		}
		for _, c := range o.Controllers.All() {
			if key, found := c.Work.Deletion(s); found {
				held.Add(s)
				example = fmt.Sprintf("%s of controller %s", key, c.Name)
			}
		}
	}
	if held.Empty() {
		return ""
	}
	return fmt.Sprintf("slots %s cannot move on: deletions in them wait to be reconciled, or keep failing, such as %s; "+
		"other objects and slots are not held back", held, example)
}

// Undone returns the deletions in a drained slot that the next owner will reconcile. Deletions that do not fit into
// room are logged.
func (o *objectHolder) Undone(s slot.Slot, room int) []table.Gone {
	var out []table.Gone
	for _, c := range o.Controllers.All() {
		fits := o.fitting(s, c.Name, c.Work.Undone(s), room)
		room -= table.GoneSize(fits)
		out = append(out, fits...)
	}
	return out
}

// fitting returns the deletions in a slot that fit into the table, and logs the others.
func (o *objectHolder) fitting(s slot.Slot, controller string, gone []table.Gone, room int) []table.Gone {
	fits, abandoned := work.Fit(gone, room)
	if n := len(abandoned); n > 0 {
		o.Abandoned()
		o.env.Log.Error(nil, "Slot given up although deletions in it could not be reconciled", "slot", s.String(),
			"controller", controller, "deletions", n, "first", work.NameOf(abandoned[0]).String())
	}
	return fits
}

// Inherit enqueues deletions that the slots' former owners left, once the slots are open here.
func (o *objectHolder) Inherit(gone []table.Gone) {
	for _, g := range gone {
		known := slices.Contains(o.Keeper.Kinds(), g.Kind)
		for _, c := range o.Controllers.All() {
			if c.Kind.String() == g.Kind {
				known = true
				c.Work.Inherit(g)
			}
		}
		if known {
			o.Inherited()
			continue
		}
		o.Abandoned()
		o.env.Log.Error(nil,
			"A deletion that a former owner left is not reconciled: this member has no controller of that kind",
			"slot", g.Slot.String(), "kind", g.Kind, "object", work.NameOf(g).String())
	}
}
