package planner

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/rota-dev/rota/internal/protocol/plan"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// planning is the state of a planner (rules R3, R7, R17).
type planning struct {
	// seen is when each member was first seen in the table.
	seen map[string]time.Duration
	// since is when this member first found something to plan, or 0.
	since time.Duration
	// key and target cache the last assignment and its input.
	key    string
	target []string
	// planned is the version of the table for which the last plan was made, and plannedDead how many members were to be
	// expelled then. planAgain is when to make a plan again in any case.
	planned     string
	plannedDead int
	planAgain   time.Duration
	// fresh is when a table without any owner was first seen, or 0.
	fresh time.Duration
	// orders is since when there have been orders to end, or 0.
	orders time.Duration
	// duties is since when there have been duties without an owner, or 0.
	duties time.Duration
}

// plan makes a planner's changes: it expels the dead, assigns slots without an owner, and evens out shares.
func (p *proposer) plan(d *draft) {
	memory := &p.planning
	if p.Rank < 0 || p.Phase != Joined {
		memory.since, memory.duties = 0, 0
		return
	}
	// With many members, Leases change all the time. Do not make a plan for each change.
	same := memory.planned == p.Version && memory.plannedDead == len(p.Expelled)
	if memory.since == 0 && same && !p.due(memory.planAgain) {
		return
	}
	memory.planned, memory.plannedDead, memory.planAgain = p.Version, len(p.Expelled), p.Now+p.Coalesce
	var dead []string
	for _, other := range p.Table.Members {
		if p.Expelled[other.ID] {
			dead = append(dead, other.ID)
		}
	}
	target := p.target(d, dead)
	p.noticeRoom()
	planned := *d
	planned.own = false // so that the plan changes a copy of d's table
	if !p.apply(&planned, dead, target) {
		memory.since = 0
		return
	}
	if p.waited(&memory.since, true, headStart(p.Rank, p.RetryPeriod)) {
		planned.due = true
		*d = planned
	}
}

// target returns the planner's assignment, which is cached.
func (p *proposer) target(d *draft, dead []string) []string {
	t := p.Table
	eligible, hold := p.eligible(dead)
	// By load, only the first planner takes slots from members that stay, since only it reads the loads.
	tolerant := p.rollout() || p.ByLoad && p.Rank > 0
	suspended := p.suspended(d.next)
	var key strings.Builder
	key.WriteString(p.Version + " " + strconv.FormatUint(fingerprint(d.next), 16))
	for _, other := range t.Members {
		key.WriteByte(' ')
		if eligible[other.ID] {
			key.WriteByte('r')
		}
		if slices.Contains(dead, other.ID) {
			key.WriteByte('d')
		}
		if len(d.next.Duties) > 0 && p.takesDuties(other) {
			key.WriteByte('t')
		}
	}
	if suspended {
		key.WriteString(" s")
	}
	if tolerant {
		key.WriteString(" t")
	}
	if hold {
		key.WriteString(" h")
	}
	if p.room.cut { // members may have room later
		key.WriteString(" m" + p.Now.String())
		p.at(p.Now + p.RetryPeriod)
	}
	if k := key.String(); k != p.planning.key {
		receives := func(other table.Member) bool { return eligible[other.ID] }
		in := p.assignment(d.next, dead, receives, tolerant, hold)
		p.planning.key, p.planning.target = k, p.assign(d.next, in, hold)
	}
	return p.planning.target
}

// assignment describes next, a table made from the view's, as input for plan.Assign. It leaves out dead members. With
// hold, slots of live members stay where they are.
func (p *proposer) assignment(
	next *table.Table, dead []string, receives func(table.Member) bool, tolerant, hold bool,
) plan.Input {
	t := p.Table
	in := p.planInput(next, receives)
	// Leavers plan their own moves, so their slots stay. Slots that are already moving count for their next owner.
	in.Members = slices.DeleteFunc(in.Members, func(other plan.Member) bool { return slices.Contains(dead, other.ID) })
	stays := func(r table.Run) bool {
		owner, ok := t.Member(r.Owner)
		return ok && (owner.Leaving || hold) && !slices.Contains(dead, r.Owner)
	}
	eachSlot(next, stays, func(s slot.Slot, _ table.Run) { in.Moving.Add(s) })
	for i := range in.Members {
		switch each := &in.Members[i]; {
		case each.Leaves:
			each.Leaves, each.Receives = false, false
		case !hold && t.Drained(each.ID):
			each.Leaves, each.Receives = true, false
		}
	}
	in.Tolerant = tolerant
	return in
}

// fingerprint hashes the part of the table that plans depend on.
func fingerprint(t *table.Table) uint64 {
	var h xxhash.Digest
	h.Reset()
	for _, r := range t.Runs {
		_, _ = h.WriteString(r.Owner + " " + r.Next + " " + r.Slots.String() + " " + t.Duty(r.Slots.First) + "\n")
	}
	for _, p := range t.Pins {
		_, _ = h.WriteString("pin " + p.Object + " " + p.Labels + "\n")
	}
	if c := &t.Canary; c.On() {
		_, _ = h.WriteString("canary " + c.Build + " " + c.State.String() + " " + strconv.Itoa(c.Step) + "\n")
	}
	last := ""
	for i := range t.Members {
		_, _ = h.WriteString(t.Members[i].Labels + "\n")
		if list := t.Members[i].Duties; i == 0 || list != last {
			last = list
			_, _ = h.WriteString(t.Members[i].ID + " ")
			_, _ = h.WriteString(list)
			_, _ = h.WriteString("\n")
		}
	}
	return h.Sum64()
}

// planInput describes the table for package plan. Its slots include those of duties. receives reports whether a member
// may get slots. Leavers never do.
func (p *proposer) planInput(t *table.Table, receives func(table.Member) bool) plan.Input {
	in := plan.Input{Owners: make([]string, t.Total())}
	eachSlot(t, func(table.Run) bool { return true }, func(s slot.Slot, r table.Run) {
		in.Owners[s] = r.Owner
		if r.Next == "" {
			return
		}
		if next, ok := t.Member(r.Next); ok && !next.Leaving && !p.Dead(r.Next) && !p.slow(r) {
			in.Owners[s] = r.Next
			in.Moving.Add(s)
		}
	})
	latest := p.lastJoined(t)
	for _, other := range t.Members {
		leaves := other.Leaving || other.ID == p.Self.ID && p.Phase == Leaving
		in.Members = append(in.Members, plan.Member{
			ID: other.ID, Weight: other.Weight, Leaves: leaves,
			Receives: !leaves && !p.Dead(other.ID) && receives(other),
			Prefer:   other.Build == latest.Build,
		})
	}
	return in
}

// slow reports whether this leaver should find another member for the slots of a run, since the next owner is not ready
// and does not renew on time.
func (p *proposer) slow(r table.Run) bool {
	return p.Phase == Leaving && r.Owner == p.Self.ID && !r.Ready && !p.OnTime(r.Next)
}

// apply adds expels and moves to the draft. It reports whether there were any.
func (p *proposer) apply(d *draft, dead []string, target []string) bool {
	t := p.Table
	var lost slot.Set
	for _, id := range dead {
		lost = lost.Union(d.next.Owned(id))
	}
	keep := map[string]bool{}
	for _, s := range lost.Slots() {
		if target[s] != "" || t.IsDuty(s) {
			continue
		}
		if !p.room.waits.Has(s) {
			return false // no member could take the slots. The dead keep them, so that the fence wait is not lost
		}
		keep[t.At(s).Owner] = true // so do members whose slots wait for memory
	}
	note := p.expelNote(dead)
	dead = slices.DeleteFunc(slices.Clone(dead), func(id string) bool { return keep[id] })
	if len(dead) > 0 {
		p.expel(d, dead)
	}
	gained, expelled, moves := map[string]*slot.Set{}, map[string]*slot.Set{}, map[string]*slot.Set{}
	begin := p.waited(&p.planning.duties, unownedDuty(t), p.JoinDelay) // gives all members time to announce it
	every := func(table.Run) bool { return true }
	eachSlot(d.next, every, func(s slot.Slot, r table.Run) {
		to := target[s]
		if to == "" || to == r.Owner || to == r.Next || d.transfers.Has(s) || d.stays.Has(s) {
			return
		}
		group := moves
		switch {
		case lost.Has(s):
			group = expelled
		case r.Owner == "" && t.IsDuty(s) && !begin:
			return
		case r.Owner == "" && t.IsDuty(s):
			group = expelled // it is unknown how its last owner lost it
		case r.Owner == "":
			group = gained
		case r.Next != "":
			return // it moves already
		case r.Owner == p.Self.ID && p.Slot(s).State == Sent:
			return
		}
		if owner, _ := t.Member(r.Owner); owner.Leaving {
			return
		}
		if !lost.Has(s) && r.Owner != "" && !d.mayMove() {
			return
		}
		add(group, to, s)
	})
	d.give(expelled, t.Epoch, note)
	d.give(gained, t.Epoch, table.Note{Cause: table.CauseAssigned})
	d.move(moves)
	return len(dead)+len(expelled)+len(gained)+len(moves) > 0
}
