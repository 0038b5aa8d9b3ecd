package planner

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// steps make a change of the table, one after the other. Each uses the view and the table as the previous steps left
// them. The order matters: a step does not change what an earlier one decided.
var steps = []func(*proposer, *draft){
	(*proposer).join,     // enter the table; nothing else happens in this phase
	(*proposer).leave,    // find next owners for everything, and go once nothing is left
	(*proposer).ready,    // report slots that are warm
	(*proposer).transfer, // give drained slots to their next owners, or call the moves off
	(*proposer).settle,   // report slots that are active
	(*proposer).announce, // add this member's duties, or suspend all duties
	(*proposer).orders,   // end orders that cannot stay
	(*proposer).advance,  // take the canary forward, or back
	(*proposer).label,    // add this member's labels
	(*proposer).plan,     // expel the dead, and assign slots
}

// draft is a change of the table in progress.
type draft struct {
	next *table.Table
	// own is true if next is a copy, so it may be changed.
	own bool
	// top is the highest epoch used by a note.
	top uint64
	// due is true if the change must be written now. done is true if later steps must not add to it.
	due, done bool
	// transfers are the slots that this change gives to their next owner.
	transfers slot.Set
	// stays are drained slots that have to open again first. This change cancels their moves and plans none.
	stays slot.Set
	leftOut
}

// leftOut lists what a draft leaves out because the table would become invalid or too large. The rest is written (rule
// R4).
type leftOut struct {
	// noDuties: only as many duties are announced as the table has room for.
	noDuties bool
	// noVersions: the next owners get no versions to reach, and list instead.
	noVersions bool
	// noGone: no deletions are left to next owners. Slots with such deletions stay, unless this member leaves.
	noGone bool
	// moves limits how many slots may be planned to move, if limited is set.
	limited bool
	moves   int
	// noTransfers: drained slots stay, and open again.
	noTransfers bool
}

// draft runs the steps, without what is left out.
func (p *proposer) draft(out leftOut) *draft {
	d := &draft{next: p.Table, leftOut: out}
	for _, step := range steps {
		if step(p, d); d.done {
			break
		}
	}
	return d
}

// fitting makes a next table that is valid and not too large, and leaves out as little as possible. It returns nil if
// nothing is due, or if leaving out does not help.
func (p *proposer) fitting() *draft {
	var cause error
	for _, out := range []leftOut{
		{},
		{noDuties: true},
		{noDuties: true, noVersions: true},
		{noDuties: true, noVersions: true, noGone: true},
		{noDuties: true, noVersions: true, noGone: true, limited: true, moves: int(p.Table.Slots) / 16},
		{noDuties: true, noVersions: true, noGone: true, limited: true},
		{noDuties: true, noVersions: true, noGone: true, limited: true, noTransfers: true},
	} {
		d := p.draft(out)
		if !d.due {
			return nil
		}
		d.next.Seal(max(p.Table.Epoch+1, d.top))
		err := d.next.Valid()
		if err == nil {
			err = p.small(d.next)
		}
		if err == nil && cause != nil {
			p.notice("TableCut", true, "a change of the table was reduced, since otherwise %v", cause)
		}
		if err == nil {
			return d
		}
		cause = cmp.Or(cause, err)
	}
	p.out.Err = cause
	return nil
}

// small returns an error if the table or its notes are too large. It reports a table that is nearly too large.
func (p *proposer) small(next *table.Table) error {
	if size := next.NotesSize(); size > p.MaxTable/4 {
		return fmt.Errorf("its notes would take %d bytes, of at most %d", size, p.MaxTable/4)
	}
	size := next.Size(p.MaxTable)
	if size > p.MaxTable {
		return fmt.Errorf("it would take %d bytes, of at most %d: have fewer slots, or members with shorter names",
			size, p.MaxTable)
	}
	if alarm := p.MaxTable / 4 * 3; size > alarm && p.Table.Size(p.MaxTable) <= alarm {
		p.notice("TableLarge", true, "the table takes %d bytes, of at most %d; "+
			"beyond that fewer slots move at a time, and no member can join: "+
			"have fewer slots, or members with shorter names", size, p.MaxTable)
	}
	return nil
}

// mayMove reports whether one more slot may be planned to move.
func (d *draft) mayMove() bool {
	if d.limited {
		d.moves--
	}
	return !d.limited || d.moves >= 0
}

// edit returns the next table for modification.
func (d *draft) edit() *table.Table {
	if !d.own {
		d.next, d.own = d.next.Clone(), true
	}
	return d.next
}

// supersede writes a table that differs only by its epoch. An earlier swap on the same version has an unknown outcome
// and may still happen. This write prevents that, or shows that it did happen.
func (d *draft) supersede() {
	d.edit()
	d.due = true
}

// update changes the state of the slots in a set.
func (d *draft) update(set slot.Set, change func(*table.Run)) {
	if !set.Empty() {
		d.edit().Update(set, change)
	}
}

// move plans moves of slots to other members, by their IDs.
func (d *draft) move(to map[string]*slot.Set) {
	for _, id := range sortedKeys(to) {
		d.update(*to[id], func(r *table.Run) { r.Next, r.Ready = id, false })
	}
}

// give makes members, by their IDs, the owners of slots at once, with a note for the new owners.
func (d *draft) give(to map[string]*slot.Set, base uint64, about table.Note) {
	for _, id := range sortedKeys(to) {
		epoch := d.note(base, about)
		d.update(*to[id], func(r *table.Run) {
			*r = table.Run{Slots: r.Slots, Owner: id, Epoch: epoch, Unsettled: true}
		})
	}
}

// note adds a note to the table and returns its epoch. The notes of one change have one epoch per cause. Their new
// owners reach the highest versions and wait for the longest time.
func (d *draft) note(base uint64, about table.Note) uint64 {
	epoch := base + uint64(about.Cause)
	note := d.edit().Notes[epoch]
	note.Cause, note.Wait = about.Cause, max(note.Wait, about.Wait)
	if about.Cause == table.CauseHanded {
		note.Versions = note.Versions.Merge(about.Versions)
	}
	d.next.Notes[epoch] = note
	d.top = max(d.top, epoch)
	return epoch
}

// at requests another proposal at the given time.
func (p *proposer) at(t time.Duration) { p.out.Again = min(p.out.Again, t) }

// due reports whether t has come. If not, it requests another proposal then.
func (p *proposer) due(t time.Duration) bool {
	if p.Now >= t {
		return true
	}
	p.at(t)
	return false
}

// waited starts the clock if something is waiting, and resets it otherwise. It reports whether the delay has passed. If
// not, it requests another proposal then.
func (p *proposer) waited(clock *time.Duration, waiting bool, delay time.Duration) bool {
	if !waiting {
		*clock = 0
		return false
	}
	if *clock == 0 {
		*clock = max(p.Now, 1)
	}
	return p.due(*clock + delay)
}
