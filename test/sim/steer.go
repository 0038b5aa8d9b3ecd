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
func (l *link) Lose(name string) { l.lose[name]++ }

// lost says whether a request is to be lost, and keeps it.
func (l *link) lost(r request) bool {
	if l.lose[r.name] == 0 {
		return false
	}
	l.lose[r.name]--
	l.w.logf("%s's %s is lost on its way", l.n.ID, r.name)
	l.w.Counts.Unknown++
	l.astray[r.name] = append(l.astray[r.name], func() {
		l.w.logf("%s's %s is admitted late", l.n.ID, r.name)
		l.w.Counts.LateWrites++
		r.effect(true)
		l.w.Sync()
	})
	l.w.after(100*time.Millisecond, func() { l.n.answered(func() { r.fail(member.OutcomeUnknown) }) })
	return true
}

// Admit lets the requests lost before take effect. It says whether there were any.
func (l *link) Admit(name string) bool {
	astray := l.astray[name]
	delete(l.astray, name)
	for _, do := range astray {
		do()
	}
	return len(astray) > 0
}

// Astray says that a request of a name is lost and not admitted yet.
func (l *link) Astray(name string) bool { return len(l.astray[name]) > 0 }

// Fly starts to reconcile the first key of a slot, until Land, whatever its context says. It says whether the gate
// admitted it.
func (ws *workers) Fly(s slot.Slot) bool {
	f := ws.take(key{s, 0})
	if f == nil {
		return false
	}
	f.stuck, f.table = true, ws.w.Objects.Table().UID
	return true
}

// Land ends what Fly began.
func (ws *workers) Land(s slot.Slot) {
	if f := ws.flights[key{s, 0}]; f != nil {
		ws.n.local(func() { ws.finish(f) })
	}
}

// WantLong has the node ask for writes that take longer than the write timeout, until d from now.
func (n *Node) WantLong(d time.Duration) {
	n.local(func() { n.driver.Post(member.LongWrites{Until: n.clock.mono() + d}) })
}

// MayLong says whether its writes may take longer than the write timeout now.
func (ws *workers) MayLong() bool {
	end, _ := ws.long.Begin()
	if end != nil {
		end()
	}
	return end != nil
}

// Write sends a write for the key that is in flight, whatever its context says by now: it was looked at before. The
// write commits after d, at most what it may take, if the fence, where there is one, lets it pass now.
func (ws *workers) Write(s slot.Slot, d time.Duration, fence bool) bool {
	f := ws.flights[key{s, 0}]
	if f == nil {
		return false
	}
	if t := ws.w.Objects.Table(); !ws.n.Paused && f.table != t.UID && t.Table != nil && f.ctx.Err() != nil {
		if _, again := t.Table.Member(ws.n.ID); again {
			// Its process has gone on and joined a new table. No safety is promised when only the sender of a write stands
			// still for so long.
			return false
		}
	}
	if fence && ws.w.fenced(ws.n) {
		ws.w.logf("%s's write for %v is refused by the fence", ws.n.ID, f.key)
		return true
	}
	f.unknown = max(f.unknown, ws.w.now+d+time.Millisecond)
	excuse := ""
	if fence && ws.w.deceived(ws.n) {
		excuse = oldCopy
	}
	timeout := ws.n.cfg.WriteTimeout
	if end, _ := ws.long.Begin(); end != nil {
		timeout = ws.n.cfg.LongestWrite() // as if it had been looked at just after a renewal
		ws.w.after(min(d, timeout), func() { ws.n.local(end) })
	}
	ws.w.after(min(d, timeout), func() { ws.w.checkWrite(ws.n, f, excuse) })
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
func (ws *workers) Delete(s slot.Slot) { ws.remove(key{s, 1}) }

// LeaveGone has the drain of a slot leave its deletions to the next owner.
func (ws *workers) LeaveGone(s slot.Slot) {
	var set slot.Set
	set.Add(s)
	ws.leaveGone(set)
	ws.n.run()
}

// Knows says that the node knows of the deletion of a slot's second key, and has not reconciled it.
func (ws *workers) Knows(s slot.Slot) bool { return len(ws.controller.Work.Undone(s)) > 0 }

// Reconcile tries the second key of a slot.
func (ws *workers) Reconcile(s slot.Slot) bool { return ws.Try(s, 1) }

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
