package explore

import (
	"slices"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// server is the state of the API server: its objects, requests that went astray, what happened so far, and how many
// faults were used up.
type server struct {
	table   snap
	version int   // of the latest change of the table, deletions included
	uids    uint8 // tables created so far
	leases  []held
	astray  []astray
	slots   []slotHistory
	used    Limits // how often each kind of bounded action happened
}

// held is a Lease, or the place of one. known: its member was told that the Lease was created.
type held struct {
	exists, known bool
	lease
}

// astray is a request whose sender does not know its result. It may take effect at any later time, or never.
type astray struct {
	kind    uint8
	lease   uint8 // the sender's, or the one to delete
	version int   // the precondition
	says    lease
	table   *table.Table
	pod     uint8
}

const (
	astrayCreateLease uint8 = iota
	astrayRenewLease
	astrayDeleteLease
	astrayCreateTable
	astraySwap
)

// slotHistory is what the checks remember of a slot.
type slotHistory struct {
	epoch  int   // of the latest opening; 0: never
	opener uint8 // Lease index
	owners []ownerAt
}

type ownerAt struct {
	epoch int
	owner uint8
}

func (s *server) clone() *server {
	c := *s
	c.leases, c.astray, c.slots = slices.Clone(s.leases), slices.Clone(s.astray), slices.Clone(s.slots)
	for i := range c.slots {
		c.slots[i].owners = slices.Clone(c.slots[i].owners)
	}
	return &c
}

// tidy drops requests that can no longer take effect. Versions never come back.
func (s *server) tidy() {
	s.astray = slices.DeleteFunc(s.astray, func(a astray) bool {
		l := s.leases[a.lease]
		switch a.kind {
		case astrayCreateLease:
			return l.exists
		case astrayRenewLease, astrayDeleteLease:
			return !l.exists || l.version != a.version
		case astrayCreateTable:
			return s.table.uid != 0
		default:
			return s.table.uid == 0 || s.table.version != a.version
		}
	})
}

func (s *server) numbers(x *space, v visit) {
	s.table.numbers(x, v)
	v.int(classTable, &s.version)
	for i := range s.leases {
		v.int(classLease+uint8(i), &s.leases[i].version)
		v.int(classEpoch, &s.leases[i].epoch)
	}
	for i := range s.astray {
		a := &s.astray[i]
		switch a.kind {
		case astraySwap:
			v.int(classTable, &a.version)
		default:
			v.int(classLease+a.lease, &a.version)
		}
		v.int(classEpoch, &a.says.epoch)
		a.table = x.renameTable(a.table, v)
	}
	for i := range s.slots {
		h := &s.slots[i]
		v.int(classEpoch, &h.epoch)
		for j := range h.owners {
			v.int(classEpoch, &h.owners[j].epoch)
		}
	}
}

func (s *server) encode(x *space, e *encoder) {
	e.snap(x, s.table)
	e.int(s.version)
	*e = append(*e, s.uids)
	for _, l := range s.leases {
		e.bools(l.exists, l.known)
		e.lease(l.lease)
	}
	e.int(len(s.astray))
	for _, a := range s.astray {
		*e = append(*e, a.kind, a.lease, a.pod)
		e.int(a.version)
		e.lease(a.says)
		e.int(x.tableID(a.table))
	}
	for _, h := range s.slots {
		*e = append(*e, h.opener)
		e.int(h.epoch)
		e.int(len(h.owners))
		for _, o := range h.owners {
			*e = append(*e, o.owner)
			e.int(o.epoch)
		}
	}
	*e = append(*e, s.used[:]...)
}

// createLease returns the Lease, and OutcomeConflict if there already was one.
func (w *world) createLease(index uint8, says lease) (lease, member.Outcome) {
	s := w.changeServer()
	l := &s.leases[index]
	if l.exists {
		return lease{}, member.OutcomeConflict
	}
	*l = held{exists: true, known: l.known}
	return w.putLease(index, says), member.OutcomeDone
}

func (w *world) renewLease(index uint8, says lease) (lease, member.Outcome) {
	if !w.server().leases[index].exists {
		return lease{}, member.OutcomeMissing
	}
	return w.putLease(index, says), member.OutcomeDone
}

func (w *world) putLease(index uint8, says lease) lease {
	l := &w.changeServer().leases[index]
	says.version = max(top, l.version) + 1
	l.lease = says
	for i := range w.x.Pods {
		if b := w.box(i); b.life == running && b.watches(index) {
			w.change(i).tell(w.x, news{leases: []leaseAt{{index, says}}})
		}
	}
	return says
}

func (w *world) deleteLease(index uint8, version int) member.Outcome {
	l := w.server().leases[index]
	switch {
	case !l.exists:
		return member.OutcomeMissing
	case l.version != version:
		return member.OutcomeConflict
	}
	w.removeLease(index)
	return member.OutcomeDone
}

func (w *world) removeLease(index uint8) {
	w.changeServer().leases[index] = held{known: w.server().leases[index].known}
	for i := range w.x.Pods {
		if b := w.box(i); b.life == running && b.watches(index) {
			w.change(i).tell(w.x, news{gone: true, leases: []leaseAt{{index: index}}})
		}
	}
}

func (b *box) watches(index uint8) bool {
	return b.watch != 0 && (b.all || b.ids>>index&1 != 0)
}

// putTable stores a new version of the table; nil deletes the table.
func (w *world) putTable(uid uint8, t *table.Table) snap {
	s := w.changeServer()
	s.version = max(top, s.version) + 1
	s.table = snap{uid: uid, version: s.version, table: t}
	for i := range w.x.Pods {
		if b := w.box(i); b.life == running {
			c := w.change(i)
			c.tables = append(c.tables, s.table)
			c.came(w.x, byTables, answer{})
		}
	}
	if t != nil {
		w.remember(t)
	}
	return s.table
}

func (w *world) createTable(by uint8, t *table.Table) (snap, member.Outcome) {
	if w.server().table.uid != 0 {
		return snap{}, member.OutcomeConflict
	}
	w.checkCreate(by, t)
	s := w.changeServer()
	s.uids++
	return w.putTable(s.uids, t), member.OutcomeDone
}

func (w *world) swapTable(by uint8, t *table.Table, uid uint8, version int) (snap, member.Outcome) {
	s := w.server()
	switch {
	case s.table.uid == 0:
		return snap{}, member.OutcomeMissing
	case s.table.uid != uid || s.table.version != version:
		return snap{}, member.OutcomeConflict
	}
	w.checkTransition(by, s.table, t)
	return w.putTable(uid, t), member.OutcomeDone
}
