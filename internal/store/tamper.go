package store

import (
	"maps"

	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/table"
)

// The methods below are what people with kubectl do: no precondition, no respect for the protocol.

// RemoveTable deletes the table, if there is one.
func (o *Objects) RemoveTable() {
	if !o.table.Missing() {
		o.setTable(member.Snapshot{}, nil)
	}
}

// Text returns the table's text, or nil where there is no table.
func (o *Objects) Text() map[string]string {
	switch {
	case o.text != nil:
		return maps.Clone(o.text)
	case o.table.Table != nil:
		return table.Encode(o.table.Table)
	}
	return nil
}

// RestoreTable replaces the table by this text, under a new UID: a backup is restored. An existing table is deleted
// first, which watchers see.
func (o *Objects) RestoreTable(text map[string]string) {
	o.RemoveTable()
	o.putText(o.newUID("table"), text)
}

// EditTable changes the text of the table, which must be there, under its UID.
func (o *Objects) EditTable(edit func(text map[string]string)) {
	text := o.Text()
	edit(text)
	o.putText(o.table.UID, text)
}

func (o *Objects) putText(uid string, text map[string]string) {
	s := member.Snapshot{UID: uid}
	s.Table, s.Err = table.Decode(text)
	o.setTable(s, maps.Clone(text))
}

// RemoveLease deletes a Lease, if there is one.
func (o *Objects) RemoveLease(id string) {
	if _, ok := o.leases[id]; ok {
		delete(o.leases, id)
		o.record(Change{Gone: id})
	}
}

// TouchLease edits a Lease, which must be there, in something that is no business of the member.
func (o *Objects) TouchLease(id string) { o.setLease(o.leases[id]) }

// HoldLease gives a Lease, which must be there, to another holder.
func (o *Objects) HoldLease(id, holder string) {
	l := o.leases[id]
	l.holder = holder
	o.setLease(l)
}
