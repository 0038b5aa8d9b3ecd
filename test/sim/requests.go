package sim

import (
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/replica"
)

// requests sends what a node's driver asks for through the network, to the world's API servers.
type requests struct{ n *Node }

var _ replica.Requests = requests{}

func (r requests) CreateLease(l member.Lease, timeout time.Duration, answer func(member.Lease, member.Outcome)) {
	w := r.n.w
	r.lease(CreateLease, l, timeout, answer, func(late bool) (member.Lease, member.Outcome) {
		out, outcome := w.Objects.CreateLease(l)
		if late && outcome == member.OutcomeDone {
			w.ghosts[r.n.ID] = out.UID
		}
		return out, outcome
	})
}

// RenewLease renews the Lease as store.Kubernetes does: an edit of the Lease since is no conflict, but a renewal that
// is late never goes over a later one.
func (r requests) RenewLease(l member.Lease, timeout time.Duration, answer func(member.Lease, member.Outcome)) {
	r.lease(RenewLease, l, timeout, answer, func(late bool) (member.Lease, member.Outcome) {
		if late {
			return r.n.w.Objects.PutLease(l)
		}
		return r.n.w.Objects.RenewLease(l)
	})
}

func (r requests) lease(name string, l member.Lease, timeout time.Duration, answer func(member.Lease, member.Outcome),
	put func(late bool) (member.Lease, member.Outcome),
) {
	r.n.Link.send(request{
		name: name, timeout: timeout,
		effect: func(late bool) func() {
			out, outcome := put(late)
			return func() { answer(out, outcome) }
		},
		fail: func(o member.Outcome) { answer(l, o) },
	})
}

func (r requests) DeleteLease(a member.DeleteLease, answer func(member.Outcome)) {
	w := r.n.w
	r.n.Link.send(request{
		name: DeleteLease, timeout: a.Timeout,
		effect: func(bool) func() {
			was, _ := w.Objects.Lease(a.ID)
			outcome := w.Objects.DeleteLease(a.ID, a.UID, a.Version)
			if outcome == member.OutcomeDone && was.Version != a.Version {
				w.violate("deleted unseen", "%s deletes the Lease of %s, which was renewed since it was seen", r.n.ID, a.ID)
			}
			return func() { answer(outcome) }
		},
		fail: answer,
	})
}

func (r requests) ReadTable(answer func(s member.Snapshot, ok bool)) {
	r.n.Link.send(request{
		name: ReadTable,
		effect: func(bool) func() {
			s := r.n.w.Objects.Table()
			if s.Missing() {
				s.Version = "" // as a 404 has none
			}
			return func() { answer(r.n.reads(s), true) }
		},
		fail: func(member.Outcome) { answer(member.Snapshot{}, false) },
	})
}

func (r requests) CreateTable(a member.CreateTable, answer func(member.Snapshot, member.Outcome)) {
	r.table(CreateTable, a.Serial, a.Table, a.Timeout, answer, r.n.w.Objects.CreateTable)
}

func (r requests) SwapTable(a member.Swap, answer func(member.Snapshot, member.Outcome)) {
	r.table(Swap, a.Serial, a.Table, a.Timeout, answer, func(t *table.Table) (member.Snapshot, member.Outcome) {
		return r.n.w.Objects.SwapTable(t, a.UID, a.Version)
	})
}

func (r requests) table(name string, serial uint64, t *table.Table, timeout time.Duration,
	answer func(member.Snapshot, member.Outcome), put func(*table.Table) (member.Snapshot, member.Outcome),
) {
	w := r.n.w
	if w.checkWritten(r.n, t) && (!w.wild || serial%4 == 0) {
		t, _ = table.Decode(table.Encode(t)) // what does not survive the text must not work here; to do so takes long
	}
	r.n.Link.send(request{
		name: name, timeout: timeout,
		effect: func(bool) func() {
			s, outcome := put(t)
			w.writer = r.n
			w.Sync()
			w.writer = nil
			if outcome == member.OutcomeConflict {
				w.Counts.Conflicts++
				w.Coverage.Rules[3]++
			}
			return func() { answer(r.n.reads(s), outcome) }
		},
		fail: func(o member.Outcome) { answer(member.Snapshot{}, o) },
	})
}

func (r requests) WatchLeases(a member.WatchLeases) { r.n.Link.followLeases(a) }
