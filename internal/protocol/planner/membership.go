package planner

import (
	"slices"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// This file implements how members enter and leave the table (rules R7 and R9).

// join adds this member to the table. It removes the previous process of its container (rule R9).
func (p *proposer) join(d *draft) {
	if p.Phase != Joining {
		return
	}
	d.done = true
	if !p.Complete {
		return
	}
	t := p.Table
	if other, ok := p.namesake(); ok {
		p.meet(other, d)
		return
	}
	former, restarted := p.Predecessor()
	if restarted && !p.Expelled[former.ID] {
		return // the member deletes its Lease first
	}
	if restarted {
		p.expel(d, []string{former.ID})
	}
	self := p.Self
	self.Joined, self.Leaving = p.Wall, false
	self.Duties, self.Labels = p.duties(t, d.leftOut), p.labels(t)
	d.edit().Put(self)
	d.next.Inherit(self, p.Former)
	d.due = true
	if restarted {
		epoch := d.note(t.Epoch, p.expelNote([]string{former.ID}))
		d.update(able(d.next, self, t.Owned(former.ID)), func(r *table.Run) {
			*r = table.Run{Slots: r.Slots, Owner: self.ID, Epoch: epoch, Unsettled: true}
		})
	}
}

// Predecessor returns the member that ran in this container before a restart. There is none if the replica was expelled
// lately: it may be crashing in a loop, so the planners expel it after a lease. There is also none if work outlives
// processes: the planners expel it once its work has ended.
func (v *View) Predecessor() (table.Member, bool) {
	if v.Outlives || v.Self.PodUID == "" || v.Phase != Joining || expels(v.Table, v.Self.Pod, v.Wall) > 0 {
		return table.Member{}, false
	}
	for _, other := range v.Table.Members {
		if other.ID != v.Self.ID && other.PodUID == v.Self.PodUID && other.Container == v.Self.Container {
			return other, true
		}
	}
	return table.Member{}, false
}

// namesake returns a member that has this member's identity and may still be working. It ignores earlier processes of
// this very container, which runs one at a time, and members that are leaving.
func (p *proposer) namesake() (table.Member, bool) {
	self := p.Self
	for _, other := range p.Table.Members {
		same := self.Pod != "" && other.Pod == self.Pod && other.Container == self.Container &&
			(other.PodUID == "" || other.PodUID != self.PodUID)
		if same && !other.Leaving && !p.Dead(other.ID) && !slices.Contains(p.Former, other.ID) {
			return other, true
		}
	}
	return table.Member{}, false
}

// meet lets this member end if its namesake is alive. Until that is known the member waits.
func (p *proposer) meet(other table.Member, d *draft) {
	pod := p.Self.Pod
	if !p.Alive(other.ID) {
		if !p.met {
			p.met = true
			p.notice("IdentityInUse", false, "member %s has this replica's pod name, %s; "+
				"waiting until its Lease shows whether it is alive", other.ID, pod)
		}
		return
	}
	if p.InDoubt {
		d.supersede()
		return
	}
	p.out.Namesake = other.ID
}

// leave plans a leaver's moves, and removes the leaver once it owns nothing.
func (p *proposer) leave(d *draft) {
	if p.Phase != Leaving {
		return
	}
	t := p.Table
	id := p.Self.ID
	self, named := t.Member(id)
	if !named {
		d.supersede()
		d.done = true
		return
	}
	if self.Leaving && ownsNothing(t, id) && !p.Sending {
		d.edit().Remove(id)
		d.due, d.done = true, true
		return
	}
	if !self.Leaving {
		self.Leaving = true
		d.edit().Put(self)
		d.due = true
	}
	// If no member can take the slots, they are drained and left without an owner.
	in := p.planInput(t, p.takesOver())
	in.Only = id
	in.Tolerant = p.rollout()
	if p.moveAway(d, p.assign(t, in, false)) {
		d.due = true
	}
}

// takesOver returns a function that reports whether a leaver's slots may go to a member. They go to drained members
// only if there are no others (rule R19).
func (p *proposer) takesOver() func(table.Member) bool {
	t := p.Table
	there := func(other table.Member) bool {
		return !p.Seen(other.ID) || p.OnTime(other.ID)
	}
	better := func(other table.Member) bool { return !t.Drained(other.ID) && there(other) }
	if slices.ContainsFunc(t.Members, func(other table.Member) bool {
		return !other.Leaving && other.ID != p.Self.ID && !p.Dead(other.ID) && better(other)
	}) {
		return better
	}
	return there
}

func ownsNothing(t *table.Table, id string) bool {
	owned := t.Owned(id)
	return owned.Empty()
}

// moveAway sets the next owners of this member's slots to target. It reports whether any changed.
func (p *proposer) moveAway(d *draft, target []string) bool {
	self := p.Self.ID
	changes := map[string]*slot.Set{}
	eachSlot(p.Table, func(r table.Run) bool { return r.Owner == self }, func(s slot.Slot, r table.Run) {
		to := target[s]
		if to == r.Next || to == self || p.Slot(s).State == Sent || to != "" && !d.mayMove() {
			return
		}
		add(changes, to, s)
	})
	d.move(changes)
	return len(changes) > 0
}

// maxExpels is how many expels the table keeps.
const maxExpels = 64

// expel removes members from the table and records that in it (rule R9).
func (p *proposer) expel(d *draft, dead []string) {
	d.edit()
	d.next.Expels = slices.DeleteFunc(d.next.Expels, func(e table.Expel) bool {
		return p.clockDistance(e.At) >= int64(crashMemory.Seconds())
	})
	for _, id := range dead {
		expelled, _ := p.Table.Member(id)
		d.next.Lose(id, max(p.Wall, 1))
		d.next.Remove(id)
		if expelled.Pod != "" {
			d.next.Expels = append(d.next.Expels, table.Expel{Pod: expelled.Pod, At: p.Wall})
		}
	}
	if n := len(d.next.Expels) - maxExpels; n > 0 {
		d.next.Expels = d.next.Expels[n:]
	}
}

// expelNote returns the note for slots that are taken from members held dead. It makes the next owners wait for writes
// that these members, and owners before them, may still have in flight.
func (p *proposer) expelNote(dead []string) table.Note {
	note := table.Note{Cause: table.CauseExpelled}
	for _, id := range dead {
		note.Wait = max(note.Wait, p.WritesEnd(id))
	}
	for _, r := range p.Table.Runs {
		if r.Unsettled && slices.Contains(dead, r.Owner) {
			note.Wait = max(note.Wait, p.Table.Notes[r.Epoch].Wait)
		}
	}
	return note
}

// noticeExpels reports the members that a change of the table expels.
func (p *proposer) noticeExpels(next *table.Table) {
	for _, id := range sortedKeys(p.Expelled) {
		_, before := p.Table.Member(id)
		if _, after := next.Member(id); before && !after {
			p.notice("Expelled", true,
				"member %s did not renew its Lease, its container was restarted, or its Lease was deleted; its slots get new "+
					"owners", id)
		}
	}
}
