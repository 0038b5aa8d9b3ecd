package planner

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// steps make a change of the table, one after the other. Each sees the view and the table as the steps before it have
// left it. Their order matters: a step leaves alone what one before it has decided.
var steps = []func(*proposer, *draft){
	(*proposer).join,     // enter the table; nothing else happens in this phase
	(*proposer).leave,    // find next owners for everything, and go once nothing is left
	(*proposer).ready,    // report slots that are warm
	(*proposer).transfer, // give drained slots to their next owners, or call the moves off
	(*proposer).settle,   // report slots that are active
	(*proposer).announce, // name this member's duties, or suspend all duties
	(*proposer).orders,   // end orders that cannot stay
	(*proposer).advance,  // take the canary on, or back
	(*proposer).label,    // name this member's labels
	(*proposer).plan,     // expel the dead, and assign slots
}

// draft is a change of the table in the making.
type draft struct {
	next *table.Table
	// own is true if next is a copy, so it may be changed.
	own bool
	// top is the highest epoch used by a note.
	top uint64
	// due is true if the change must be written now. done is true if no other step may add to it.
	due, done bool
	// transfers are the slots that this change gives to their next owner.
	transfers slot.Set
	// stays are drained slots that have to open again first. This change cancels their moves, and plans none.
	stays slot.Set
	leftOut
}

// leftOut is what a draft leaves out because it would make the table invalid or too large. The rest is written (rule
// R4).
type leftOut struct {
	// noDuties: only as many duties are announced as the table has room for.
	noDuties bool
	// noVersions: the next owners get no versions to reach, and list instead.
	noVersions bool
	// noGone: no deletions are left to next owners. Slots that have some stay, unless this member leaves.
	noGone bool
	// moves is how many slots may be planned to move, if limited.
	limited bool
	moves   int
	// noTransfers: drained slots stay, and open again.
	noTransfers bool
}

// draft runs the steps, but for what is left out.
func (p *proposer) draft(out leftOut) *draft {
	d := &draft{next: p.Table, leftOut: out}
	for _, step := range steps {
		if step(p, d); d.done {
			break
		}
	}
	return d
}

// fitting makes a next table that is valid and not too large. It leaves out as little as it can. The result is nil if
// nothing is due, or if nothing helps.
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
			p.notice("TableCut", true, "left something out of a change of the table, since with it %v", cause)
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

// mayMove is true if one more slot may be planned to move.
func (d *draft) mayMove() bool {
	if d.limited {
		d.moves--
	}
	return !d.limited || d.moves >= 0
}

// edit returns the next table, to be changed.
func (d *draft) edit() *table.Table {
	if !d.own {
		d.next, d.own = d.next.Clone(), true
	}
	return d.next
}

// supersede writes a table that differs by its epoch alone. An earlier swap on the same version has an unknown outcome
// and may still happen. This one prevents that, or finds that it did happen.
func (d *draft) supersede() {
	d.edit()
	d.due = true
}

// update changes the slots of a set.
func (d *draft) update(set slot.Set, change func(*table.Run)) {
	if !set.Empty() {
		d.edit().Update(set, change)
	}
}

// move plans that slots go to other members, by their IDs.
func (d *draft) move(to map[string]*slot.Set) {
	for _, id := range sortedKeys(to) {
		d.update(*to[id], func(r *table.Run) { r.Next, r.Ready = id, false })
	}
}

// give makes members, by their IDs, the owners of slots at once, with a note about how the slots come to them.
func (d *draft) give(to map[string]*slot.Set, base uint64, about table.Note) {
	for _, id := range sortedKeys(to) {
		epoch := d.note(base, about)
		d.update(*to[id], func(r *table.Run) {
			*r = table.Run{Slots: r.Slots, Owner: id, Epoch: epoch, Unsettled: true}
		})
	}
}

// note adds a note to the table and returns its epoch. The notes of one change have an epoch for each cause, and their
// new owners reach the highest versions and wait for the longest time.
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

// at asks to propose again at the given time.
func (p *proposer) at(t time.Duration) { p.out.Again = min(p.out.Again, t) }

// due is true once t has come. Until then it asks to propose again.
func (p *proposer) due(t time.Duration) bool {
	if p.Now >= t {
		return true
	}
	p.at(t)
	return false
}

// waited starts the clock if something is waiting, and resets it otherwise. It is true once the delay has passed. Until
// then it asks to propose again.
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
