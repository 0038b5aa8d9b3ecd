package sim

import (
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// objectHolder has the objects of a node. In scripts it answers after a moment, unless that is held, and nobody works.
type objectHolder struct{ n *Node }

// parts are as in production: duties come first.
func (n *Node) parts() []replica.Part {
	hash, duties := n.w.split(n.w.all())
	return []replica.Part{{Holder: dutyHolder{n.Duties.Duties, n}, Slots: duties}, {Holder: objectHolder{n}, Slots: hash}}
}

func (o objectHolder) Hold(set slot.Set) {
	o.n.Work.held = o.n.Work.held.Union(set)
	if o.n.w.wild {
		o.n.informer.hold(set)
	}
}

func (o objectHolder) Warm(set slot.Set, done func(held slot.Set)) {
	if o.n.w.wild {
		o.n.informer.settled(set, o.n.hands(done))
		return
	}
	o.n.Link.answers(Warm, func() { done(set) })
}

func (o objectHolder) Expect(a member.Load, _ bool) {
	o.n.Work.inherit(a)
	if o.n.w.wild {
		o.n.informer.expect(a)
	}
}

func (o objectHolder) Load(a member.Load, done func(held slot.Set)) {
	if o.n.w.wild {
		o.n.informer.load(a, o.n.hands(done))
		return
	}
	o.n.Link.answers(Load, func() { done(a.Slots) })
}

// Open opens the gate. What the slots have is enqueued later.
func (o objectHolder) Open(set slot.Set, epoch uint64) {
	n := o.n
	parked := n.gate.Open(set, epoch)
	n.Work.cancelled()
	n.Work.opened = set.Slots()
	n.Work.gather(set, parked)
}

func (o objectHolder) CatchUp(set slot.Set, done func()) {
	if o.n.w.wild {
		o.n.informer.catchUp(set, func() { o.n.Work.whenGathered(done) })
		return
	}
	o.n.Link.whenReleased(Drain, done)
}

func (o objectHolder) Drain(d replica.Drain) (look func() (more bool)) {
	n := o.n
	n.Work.left = n.Work.left.Minus(d.Slots)
	n.Work.removeSome(d.Slots)
	if !n.w.handsOver() {
		d.Room = 0
	}
	all := []*work.Controller{n.Work.controller}
	left := &work.Leftover{
		Of: func() []*work.Controller { return all }, Begun: n.clock.mono(), Waits: d.Slots, Room: d.Room, LeaveBy: d.LeaveBy,
		Hopeless: func(slot.Slot) bool { return false },
	}
	var open slot.Set
	for _, s := range d.Slots.Slots() {
		if n.gate.AdmitsGone(s) {
			open.Add(s)
		}
	}
	n.gate.Drain(d.Slots, func(s slot.Slot) bool { return work.Wait(all, s) },
		func(s slot.Slot) { d.Idle(s, n.Work.leavesGone(s, d.Room, open.Has(s))) })
	n.Work.controller.Hurry(d.Slots)
	return func() bool {
		if !n.w.wild {
			return false // a script says what happens
		}
		if leave := left.Look(n.clock.mono()); !leave.Empty() {
			n.Work.leaveGone(leave)
		}
		parked, more := n.reviews(d)
		n.Work.controller.Resume(parked)
		return more
	}
}

func (o objectHolder) Shut(set slot.Set) {
	o.n.gate.Shut(set)
	o.n.Work.controller.Silence(set)
	o.n.Work.cancelled()
}

func (o objectHolder) Release(set slot.Set) {
	if o.n.w.wild {
		o.n.informer.release(set)
		o.n.Work.record.Forget(set)
	}
	o.n.Work.forget(set)
}

func (objectHolder) HeldBack(slot.Set) []string { return nil }

func (objectHolder) Abandon(slot.Set) {}

// reviews looks at a drain.
func (n *Node) reviews(d replica.Drain) (parked []gate.Key, more bool) {
	parked, more = d.Review(n.gate, n.clock.mono())
	if n.Leaving {
		n.Work.cancelled() // some were cut short
	}
	return parked, more
}

// hands returns done as it is called by what calls back while the node does not run.
func (n *Node) hands(done func(slot.Set)) func(slot.Set) {
	return func(held slot.Set) { n.answered(func() { done(held) }) }
}

// answers does something after a moment, once the node's requests of that name are not held back.
func (l *link) answers(name string, do func()) {
	l.whenReleased(name, func() {
		wait := quick
		if l.w.wild {
			wait = l.w.between(time.Millisecond, 100*time.Millisecond)
		}
		l.w.after(wait, func() { l.n.local(func() { l.n.answered(do) }) })
	})
}

// whenReleased does something once the node's requests of a name are not held back.
func (l *link) whenReleased(name string, do func()) {
	if waiting, ok := l.held[name]; ok {
		l.held[name] = append(waiting, func() { l.n.answered(do) })
		return
	}
	do()
}
