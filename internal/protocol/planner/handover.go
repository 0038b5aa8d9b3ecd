package planner

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// This file implements the steps of a handover that concern the member's own slots: it gets slots ready, gives them to
// their next owner, and settles (rules R6 and R8).

// ready reports the slots that this member has warmed.
func (p *proposer) ready(d *draft) {
	var set slot.Set
	more := false
	eachSlot(p.Table, func(r table.Run) bool { return r.Next == p.Self.ID }, func(s slot.Slot, r table.Run) {
		switch p.Slot(s).State { //nolint:exhaustive // slots in other states are not moving to this member
		case Warm:
			if !r.Ready {
				set.Add(s)
			}
		case Warming:
			more = true
		}
	})
	delay := time.Duration(0)
	if more {
		delay = p.Coalesce
	}
	if p.waited(&p.delays.ready, !set.Empty(), delay) {
		d.due = true
	}
	d.update(set, func(r *table.Run) { r.Ready = true })
}

// transfer gives drained slots to their next owners. It cancels moves to members that are leaving or do not renew (rule
// R6).
func (p *proposer) transfer(d *draft) {
	t := p.Table
	var set, abort slot.Set
	more := false
	mine := func(r table.Run) bool { return r.Owner == p.Self.ID && (r.Next != "" || p.givesUp(r)) }
	eachSlot(d.next, mine, func(s slot.Slot, r table.Run) {
		if r.Next != t.At(s).Next {
			return // this draft has changed the plan
		}
		state := p.Slot(s).State
		next, _ := t.Member(r.Next)
		going := state == Drained || state == Sent
		unseen := r.Next != "" && !p.Seen(r.Next)
		unfit := next.Leaving || Suspends(t, r, p.Wall) || state == Open && p.unwanted(r)
		switch {
		case r.Next != "" && (unfit || (going || state == Draining) && !unseen && !p.Renewing(r.Next)):
			abort.Add(s)
		case going && unseen:
		case going && r.Next != "" && d.noTransfers:
			d.stays.Add(s)
		case going && (r.Ready || r.Next == "" && p.givesUp(r)):
			set.Add(s)
		case state == Draining:
			more = true
		}
	})
	wait := p.tooMuchGone(d, set)
	set = set.Minus(wait)
	if p.Phase != Leaving {
		d.stays = d.stays.Union(wait) // these open again until there is room
	}
	abort = abort.Union(d.stays)
	// One change cannot both cancel and transfer. Slots to transfer are drained at the version it is conditional on.
	if p.waited(&p.delays.abort, !abort.Empty(), 0) {
		d.due = true
	}
	d.update(abort, func(r *table.Run) { r.Next, r.Ready = "", false })
	delay := time.Duration(0)
	if more {
		delay = p.Coalesce
	}
	if p.waited(&p.delays.transfer, !set.Empty(), delay) {
		d.due = true
	}
	for _, s := range set.Slots() {
		p.hand(s, t.At(s).Next, d)
	}
	d.transfers = set
}

// hand gives a slot to its next owner, if any, with the results of its drain. If this member never loaded the slot, the
// deletions that it had to reconcile stay in the table.
func (p *proposer) hand(s slot.Slot, next string, d *draft) {
	var one slot.Set
	one.Add(s)
	if next == "" {
		d.update(one, func(r *table.Run) { *r = table.Run{Slots: r.Slots, Epoch: r.Epoch} })
		return
	}
	left := p.Slot(s)
	about := table.Note{Cause: left.Cause, Versions: left.Versions}
	if d.noVersions {
		about = table.Note{Cause: table.CauseAssigned}
	}
	epoch := d.note(p.Table.Epoch, about)
	d.update(one, func(r *table.Run) {
		*r = table.Run{Slots: r.Slots, Owner: next, Epoch: epoch, Unsettled: true}
	})
	if left.Loaded {
		d.next.DropGone(s)
	}
	if !d.noGone {
		d.next.PutGone(left.Gone)
	}
}

// tooMuchGone returns the slots of a set that have to wait until others have settled, because the table has no room for
// their deletions, or some member does not read GoneFormat.
func (p *proposer) tooMuchGone(d *draft, set slot.Set) (wait slot.Set) {
	room := p.GoneRoom() - table.GoneSize(p.Table.Gone)
	for _, s := range set.Slots() {
		size := table.GoneSize(p.Slot(s).Gone)
		switch {
		case size == 0:
		case d.noGone && p.Phase == Leaving: // a leaver cannot wait: it drops these deletions, and reports that
		case d.noGone || size > room || !p.Table.Reads(table.GoneFormat):
			wait.Add(s)
		default:
			room -= size
		}
	}
	return wait
}

// settle reports this member's slots that have become active.
func (p *proposer) settle(d *draft) {
	var set slot.Set
	mine := func(r table.Run) bool { return r.Owner == p.Self.ID && r.Unsettled }
	eachSlot(p.Table, mine, func(s slot.Slot, r table.Run) {
		if at := p.Slot(s); at.Epoch == r.Epoch && at.State == Open && !d.transfers.Has(s) {
			set.Add(s)
		}
	})
	if p.waited(&p.delays.settle, !set.Empty(), p.settleDelay()) {
		d.due = true
	}
	d.update(set, func(r *table.Run) { r.Unsettled = false })
}

// settlers is how many members may report settled slots at the same time.
const settlers = 100

// settleDelay is SettleDelay, and longer with more than settlers members: by up to SettleDelay for each settlers of
// them, by the hash of the member's ID. Each member writes for itself, after a crash possibly many at once, and all
// members watch every write. No member waits for these writes. A move only seems to end later.
func (p *proposer) settleDelay() time.Duration {
	n := len(p.Table.Members)
	if n <= settlers {
		return p.SettleDelay
	}
	spread := p.SettleDelay * time.Duration(n) / settlers
	return p.SettleDelay + spread*time.Duration(xxhash.Sum64String(p.Self.ID)%1024)/1024
}

// givesUp reports whether this member gives up its slots of the run, even without a next owner.
func (p *proposer) givesUp(r table.Run) bool {
	return p.Phase == Leaving || Suspends(p.Table, r, p.Wall)
}
