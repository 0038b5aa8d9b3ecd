package sim

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/slot"
)

// The methods here let a script do by hand what Chaos leaves to chance.

// Lose makes the next request of a name one of unknown outcome: the client is told so at once, and the request
// takes effect only when Admit says so.
func (n *Node) Lose(name string) { n.lose[name]++ }

// lost says whether a request is to be lost, and keeps it.
func (n *Node) lost(r request) bool {
	if n.lose[r.name] == 0 {
		return false
	}
	n.lose[r.name]--
	n.w.logf("%s's %s is lost on its way", n.ID, r.name)
	n.w.Counts.Unknown++
	n.astray[r.name] = append(n.astray[r.name], func() {
		n.w.logf("%s's %s is admitted late", n.ID, r.name)
		n.w.Counts.LateWrites++
		r.effect(true)
		n.w.Sync()
	})
	n.w.after(100*time.Millisecond, func() { n.answered(func() { r.fail(member.OutcomeUnknown) }) })
	return true
}

// Admit lets the requests lost before take effect. It says whether there were any.
func (n *Node) Admit(name string) bool {
	astray := n.astray[name]
	delete(n.astray, name)
	for _, do := range astray {
		do()
	}
	return len(astray) > 0
}

// Astray says that a request of a name is lost and not admitted yet.
func (n *Node) Astray(name string) bool { return len(n.astray[name]) > 0 }

// Fly starts to reconcile the first key of a slot, until Land, whatever its context says. It says whether the gate
// admitted it.
func (n *Node) Fly(s slot.Slot) bool {
	f := n.take(key{s, 0})
	if f == nil {
		return false
	}
	f.stuck, f.table = true, n.w.Objects.Table().UID
	return true
}

// Land ends what Fly began.
func (n *Node) Land(s slot.Slot) {
	if f := n.work.flights[key{s, 0}]; f != nil {
		n.local(func() { n.finish(f) })
	}
}

// WantLong has the node ask for writes that take longer than the write timeout, until d from now.
func (n *Node) WantLong(d time.Duration) {
	n.local(func() { n.driver.Post(member.LongWrites{Until: n.mono() + d}) })
}

// MayLong says whether its writes may take longer than the write timeout now.
func (n *Node) MayLong() bool {
	end, _ := n.long.Begin()
	if end != nil {
		end()
	}
	return end != nil
}

// Write sends a write for the key that is in flight, whatever its context says by now: it was looked at before. The
// write commits after d, at most what it may take, if the fence, where there is one, lets it pass now.
func (n *Node) Write(s slot.Slot, d time.Duration, fence bool) bool {
	f := n.work.flights[key{s, 0}]
	if f == nil {
		return false
	}
	if t := n.w.Objects.Table(); !n.Paused && f.table != t.UID && t.Table != nil && f.ctx.Err() != nil {
		if _, again := t.Table.Member(n.ID); again {
			// Its process has gone on and joined a new table. No safety is promised when only the sender of a write stands
			// still for so long.
			return false
		}
	}
	if fence && n.w.fenced(n) {
		n.w.logf("%s's write for %v is refused by the fence", n.ID, f.key)
		return true
	}
	f.unknown = max(f.unknown, n.w.now+d+time.Millisecond)
	excuse := ""
	if fence && n.w.deceived(n) {
		excuse = oldCopy
	}
	timeout := n.cfg.WriteTimeout
	if end, _ := n.long.Begin(); end != nil {
		timeout = n.cfg.LongestWrite() // as if it had been looked at just after a renewal
		n.w.after(min(d, timeout), func() { n.local(end) })
	}
	n.w.after(min(d, timeout), func() { n.w.checkWrite(n, f, excuse) })
	return true
}

// Told says that some Lease tells the table's epoch. Nobody can know what an old copy hides that is put over the table
// before, once who had seen it has ended (docs/guarantees.md).
func (w *World) Told() bool {
	s := w.Objects.Table()
	return s.Table != nil && slices.ContainsFunc(w.Objects.Leases(), func(l member.Lease) bool {
		return l.TableUID == s.UID && l.Epoch >= s.Table.Epoch
	})
}

// Delete makes the second key of a slot one whose object is gone, known to the node and not reconciled (rule R15).
func (n *Node) Delete(s slot.Slot) { n.remove(key{s, 1}) }

// LeaveGone has the drain of a slot leave its deletions to the next owner.
func (n *Node) LeaveGone(s slot.Slot) {
	var set slot.Set
	set.Add(s)
	n.leaveGone(set)
	n.run()
}

// Knows says that the node knows of the deletion of a slot's second key, and has not reconciled it.
func (n *Node) Knows(s slot.Slot) bool { return len(n.work.controller.Undone(s)) > 0 }

// Reconcile tries the second key of a slot.
func (n *Node) Reconcile(s slot.Slot) bool { return n.Try(s, 1) }

// Table and Lease watches of the node, for scripts.

// Relist breaks a watch: what is on its way is lost, and the state is reported anew.
func (f *Feed) Relist() {
	f.blocked = false
	f.relist()
}

// Deliver lets the first n waiting reports of a blocked feed through.
func (f *Feed) Deliver(n int) int {
	n = min(n, len(f.waiting))
	let := f.waiting[:n:n]
	f.waiting = f.waiting[n:]
	for _, do := range let {
		do()
	}
	return n
}

// Planner says that the member watches all Leases.
func (n *Node) Planner() bool { return n.planner }
