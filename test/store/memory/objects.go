package memory

import (
	"maps"
	"slices"
	"strconv"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Objects is what an API server holds of one rota, as a plain data structure: the table, the Leases, and the history
// from which watches are served. It is not safe for concurrent use; Store is.
//
// Every change raises the version that all objects share, as with etcd. Neither side may change what was passed in or
// out.
type Objects struct {
	version uint64
	uids    uint64
	table   member.Snapshot
	text    map[string]string
	leases  map[string]memLease
	history []Change
	// forgotten is the highest version that the history does not have any more.
	forgotten uint64
}

// memLease is a Lease and who holds it.
type memLease struct {
	member.Lease
	holder string
}

// Change is one change: exactly one of Table, Lease and Gone is set.
type Change struct {
	// Version is the version that the change made.
	Version uint64
	// Table is the table's new state. It may be missing.
	Table *member.Snapshot
	// Lease is new or changed.
	Lease *member.Lease
	// Gone is the ID of a deleted Lease.
	Gone string
}

// maxHistory is the number of changes kept. Half of them are forgotten at a time.
const maxHistory = 8192

// NewObjects returns an empty store.
func NewObjects() *Objects { return &Objects{leases: map[string]memLease{}} }

// Version returns the version of the latest change. A watch goes on from it after a list.
func (o *Objects) Version() uint64 { return o.version }

// Since returns the changes above a version, oldest first. It returns false if some of them are forgotten.
func (o *Objects) Since(version uint64) ([]Change, bool) {
	if version < o.forgotten {
		return nil, false
	}
	return o.history[version-o.forgotten:], true
}

// Forget drops the history. A watch from an earlier version must list again (410 Gone).
func (o *Objects) Forget() { o.history, o.forgotten = nil, o.version }

// Table returns the table as it is.
func (o *Objects) Table() member.Snapshot {
	s := o.table
	if s.Missing() {
		s.Version = formatVersion(o.version)
	}
	return s
}

// CreateTable creates the table. OutcomeConflict: there is one.
func (o *Objects) CreateTable(t *table.Table) (member.Snapshot, member.Outcome) {
	if !o.table.Missing() {
		return member.Snapshot{}, member.OutcomeConflict
	}
	return o.setTable(member.Snapshot{UID: o.newUID("table"), Table: t}, nil), member.OutcomeDone
}

// SwapTable replaces the table. OutcomeMissing: there is none. OutcomeConflict: UID or version differ.
func (o *Objects) SwapTable(t *table.Table, uid, version string) (member.Snapshot, member.Outcome) {
	switch {
	case o.table.Missing():
		return member.Snapshot{}, member.OutcomeMissing
	case o.table.UID != uid || o.table.Version != version:
		return member.Snapshot{}, member.OutcomeConflict
	}
	return o.setTable(member.Snapshot{UID: uid, Table: t}, nil), member.OutcomeDone
}

// setTable stores the table. text is what it was decoded from, or nil.
func (o *Objects) setTable(s member.Snapshot, text map[string]string) member.Snapshot {
	o.table, o.text = s, text
	o.table.Version = o.record(Change{Table: &o.table})
	return o.table
}

// Lease returns a member's Lease.
func (o *Objects) Lease(id string) (member.Lease, bool) {
	l, ok := o.leases[id]
	return l.Lease, ok
}

// Leases returns all Leases, sorted by ID.
func (o *Objects) Leases() []member.Lease {
	out := make([]member.Lease, 0, len(o.leases))
	for _, id := range slices.Sorted(maps.Keys(o.leases)) {
		out = append(out, o.leases[id].Lease)
	}
	return out
}

// CreateLease creates a Lease. OutcomeConflict: there is one.
func (o *Objects) CreateLease(lease member.Lease) (member.Lease, member.Outcome) {
	if _, exists := o.leases[lease.ID]; exists {
		return member.Lease{}, member.OutcomeConflict
	}
	lease.UID = o.newUID("lease")
	return o.setLease(memLease{lease, lease.ID}), member.OutcomeDone
}

// PutLease replaces a Lease on condition of its UID and version, as a single PUT does.
func (o *Objects) PutLease(lease member.Lease) (member.Lease, member.Outcome) {
	old, ok := o.leases[lease.ID]
	switch {
	case !ok:
		return member.Lease{}, member.OutcomeMissing
	case old.UID != lease.UID || old.Version != lease.Version:
		return member.Lease{}, member.OutcomeConflict
	}
	return o.setLease(memLease{lease, lease.ID}), member.OutcomeDone
}

// RenewLease replaces a Lease on condition of its UID and holder, whatever its version. Store.RenewLease has the same
// effect if nothing is late.
func (o *Objects) RenewLease(lease member.Lease) (member.Lease, member.Outcome) {
	old, ok := o.leases[lease.ID]
	switch {
	case !ok:
		return member.Lease{}, member.OutcomeMissing
	case old.UID != lease.UID || old.holder != lease.ID:
		return member.Lease{}, member.OutcomeConflict
	}
	return o.setLease(memLease{lease, lease.ID}), member.OutcomeDone
}

// DeleteLease deletes a Lease on condition of its UID and version. With an empty uid it deletes nothing.
func (o *Objects) DeleteLease(id, uid, version string) member.Outcome {
	old, ok := o.leases[id]
	switch {
	case !ok:
		return member.OutcomeMissing
	case old.UID != uid || old.Version != version:
		return member.OutcomeConflict
	}
	o.RemoveLease(id)
	return member.OutcomeDone
}

func (o *Objects) setLease(l memLease) member.Lease {
	c := Change{Lease: &member.Lease{}}
	l.Version = o.record(c)
	*c.Lease = l.Lease
	o.leases[l.ID] = l
	return l.Lease
}

// record appends to the history and returns the change's version.
func (o *Objects) record(c Change) string {
	o.version++
	c.Version = o.version
	if c.Table != nil {
		s := *c.Table
		s.Version = formatVersion(o.version)
		c.Table = &s
	}
	if len(o.history) >= maxHistory {
		o.history = slices.Clone(o.history[maxHistory/2:])
		o.forgotten += maxHistory / 2
	}
	o.history = append(o.history, c)
	return formatVersion(o.version)
}

func (o *Objects) newUID(what string) string {
	o.uids++
	return "uid-" + what + "-" + strconv.FormatUint(o.uids, 10)
}

func formatVersion(v uint64) string { return strconv.FormatUint(v, 10) }
