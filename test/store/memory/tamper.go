package memory

import (
	"maps"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// The methods below do what people do with kubectl: they have no preconditions and ignore the protocol.

// RemoveTable deletes the table, if there is one.
func (o *Objects) RemoveTable() {
	if !o.table.Missing() {
		o.setTable(member.Snapshot{}, nil)
	}
}

// Text returns the table's text, or nil if there is no table.
func (o *Objects) Text() map[string]string {
	switch {
	case o.text != nil:
		return maps.Clone(o.text)
	case o.table.Table != nil:
		return table.Encode(o.table.Table)
	}
	return nil
}

// RestoreTable restores a backup: it replaces the table by this text, under a new UID. It first deletes an existing
// table, and watchers see that.
func (o *Objects) RestoreTable(text map[string]string) {
	o.RemoveTable()
	o.putText(o.newUID("table"), text)
}

// EditTable changes the text of the table, which must exist. The UID stays.
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

// TouchLease edits a Lease, which must exist, in a field that the member does not use.
func (o *Objects) TouchLease(id string) { o.setLease(o.leases[id]) }

// HoldLease gives a Lease, which must exist, to another holder.
func (o *Objects) HoldLease(id, holder string) {
	l := o.leases[id]
	l.holder = holder
	o.setLease(l)
}
