package sim

import (
	"context"

	"github.com/go-logr/logr"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// objectHolder is production's holder of a node's objects, looked at from outside.
type objectHolder struct {
	replica.Holder
	n *Node
}

// parts are as in production: duties come first.
func (n *Node) parts() []replica.Part {
	hash, duties := n.w.split(n.w.all())
	calls := replica.NewCalls(context.Background(), logr.Discard(), &n.runner)
	objects := controllers.NewHolder(controllers.HolderEnv{
		Controllers: n.Work.set, Keeper: n.keeper, HeldBackBy: func(slot.Set) []string { return nil },
		Abandoned: func() {}, Inherited: func() { n.w.Counts.Inherited++ },
	})
	return []replica.Part{
		{Holder: dutyHolder{n.Duties.Duties, n}, Slots: duties},
		{Holder: objectHolder{replica.Wait(objects, calls), n}, Slots: hash},
	}
}

func (o objectHolder) Expect(a member.Load, later bool) {
	o.n.Work.inherit(a)
	if o.n.w.opts.LeavesGone != nil {
		a.Gone = nil // a script says what is left, and nobody works
	}
	o.Holder.Expect(a, later)
}

func (o objectHolder) Open(set slot.Set, epoch uint64) {
	o.Holder.Open(set, epoch)
	o.n.Work.cancelled()
	o.n.Work.opened = set.Slots()
}

func (o objectHolder) Drain(d replica.Drain) (look func() (more bool)) {
	n := o.n
	n.Work.left = n.Work.left.Minus(d.Slots)
	n.Work.removeSome(d.Slots)
	if !n.w.handsOver() {
		d.Room = 0
	}
	var open slot.Set
	for _, s := range d.Slots.Slots() {
		if n.gate.AdmitsGone(s) {
			open.Add(s)
		}
	}
	idle := d.Idle
	d.Idle = func(s slot.Slot, gone []table.Gone) { idle(s, n.Work.leavesGone(s, gone, d.Room, open.Has(s))) }
	left := &work.Leftover{
		Of: n.Work.set.Works, Begun: n.clock.mono(), Waits: d.Slots, Room: d.Room, LeaveBy: d.LeaveBy,
		Hopeless: func(slot.Slot) bool { return false },
	}
	reviews := o.Holder.Drain(d)
	return func() bool {
		if !n.w.wild {
			return false // a script says what happens
		}
		n.Work.left = n.Work.left.Union(left.Look(n.clock.mono())) // as production finds in a moment
		more := reviews()
		if n.Leaving {
			n.Work.cancelled() // some were cut short
		}
		return more
	}
}

func (o objectHolder) Shut(set slot.Set) {
	o.Holder.Shut(set)
	o.n.Work.cancelled()
}

func (o objectHolder) Release(set slot.Set) {
	o.Holder.Release(set)
	o.n.Work.forget(set)
}
