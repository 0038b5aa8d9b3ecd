package member

import (
	"fmt"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// leftOut is what a draft leaves out because it would make the table invalid or too large. The rest is written (rule
// R4).
type leftOut struct {
	// noDuties: only as many duties are announced as the table has room for.
	noDuties bool
	// noVersions: the next owners get no versions to reach, and list instead.
	noVersions bool
	// noGone: no deletions are left to next owners. Slots that have some stay, but for those of a leaver.
	noGone bool
	// moves is how many slots may be planned to move, if limited.
	limited bool
	moves   int
	// noTransfers: drained slots stay, and open again.
	noTransfers bool
}

// mayMove says whether one more slot may be planned to move.
func (d *draft) mayMove() bool {
	if d.limited {
		d.moves--
	}
	return !d.limited || d.moves >= 0
}

// fitting makes a next table that is valid and not too large. It leaves out as little as it can. It returns nil if
// nothing helps.
func (m *Member) fitting(t *table.Table) *draft {
	var cause error
	for _, out := range []leftOut{
		{},
		{noDuties: true},
		{noDuties: true, noVersions: true},
		{noDuties: true, noVersions: true, noGone: true},
		{noDuties: true, noVersions: true, noGone: true, limited: true, moves: int(t.Slots) / 16},
		{noDuties: true, noVersions: true, noGone: true, limited: true},
		{noDuties: true, noVersions: true, noGone: true, limited: true, noTransfers: true},
	} {
		d := m.draft(t, out)
		if !d.due {
			return d
		}
		d.next.Seal(max(t.Epoch+1, d.top))
		err := d.next.Valid()
		if err == nil {
			err = m.small(t, d.next)
		}
		if err == nil && cause != nil {
			m.note("TableCut", true, "left something out of a change of the table, since with it %v", cause)
		}
		if err == nil {
			return d
		}
		if cause == nil {
			cause = err
		}
	}
	m.invalid(cause)
	return nil
}

// invalid reports that nothing was written. A table that is invalid would stop every member (rule R4).
func (m *Member) invalid(err error) {
	m.note("InvalidTable", true,
		"a change of the table was not written, since the result would be invalid: %v; trying again", err)
	m.swap.retryAt = m.now.Mono + m.cfg.RetryPeriod
}

// small returns an error if the table or its notes are too large. It reports a table that is nearly too large.
func (m *Member) small(before, t *table.Table) error {
	if size := t.NotesSize(); size > m.cfg.MaxTable/4 {
		return fmt.Errorf("its notes would take %d bytes, of at most %d", size, m.cfg.MaxTable/4)
	}
	size := t.Size(m.cfg.MaxTable)
	if size > m.cfg.MaxTable {
		return fmt.Errorf("it would take %d bytes, of at most %d: have fewer slots, or members with shorter names",
			size, m.cfg.MaxTable)
	}
	if alarm := m.cfg.MaxTable / 4 * 3; size > alarm && before.Size(m.cfg.MaxTable) <= alarm {
		m.note("TableLarge", true, "the table takes %d bytes, of at most %d; "+
			"beyond that fewer slots move at a time, and no member can join: "+
			"have fewer slots, or members with shorter names", size, m.cfg.MaxTable)
	}
	return nil
}
