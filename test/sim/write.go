package sim

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/internal/writes"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/streamtest"
)

// What reconciles write: their own object, and now and then they delete a wanderer. The production Record says what the
// next owner of the slot has to see of that (rule R8), as it does for package delivery.

// place is where the objects of a slot count.
func place(s slot.Slot) ledger.Place { return ledger.Place{Key: website.Kind, Slot: s} }

// recorded makes the record of a node that has written nothing.
func (ws *workers) recorded() *ledger.Record {
	return ledger.NewRecord(ws.w.opts.Slots, func(string) []ledger.View { return []ledger.View{view{ws.n}} })
}

// view is the informer of a node. It notes the versions that it sees.
type view struct{ n *Node }

func (v view) Shows(name types.NamespacedName, uid types.UID) bool {
	at, _ := strconv.Atoi(name.Name)
	has := v.n.informer.Has[at]
	return !has.Exists || wandererUID(has) != uid
}

func (view) Version() string { return "" }

func wandererUID(s streamtest.State) types.UID { return types.UID(strconv.Itoa(s.UID)) }

// sent is a write. It changes the object of its flight, or deletes a wanderer: gone is that as the node's store has it.
type sent struct {
	writes.Attempt
	begun time.Duration // by the node's monotonic clock
	of    *flight
	gone  *streamtest.State
	// stalled: the process stopped between the check and the sending.
	stalled bool
	// release is called when it cannot take effect any more.
	release func()
}

// write writes something to the API server for a key, also after a leaving member has cut its reconcile short, as with
// context.WithoutCancel.
func (ws *workers) write(f *flight) {
	if f.over || ws.n.Link.mute > ws.w.now { // or it does not get there
		return
	}
	by, admitted := work.AdmittedBy(f.ctx, ws.n.gate)
	left := ws.n.deadline - ws.n.clock.late()
	if !admitted || gate.Ended(f.ctx) != nil || left <= 0 {
		return
	}
	w := ws.w
	one := &sent{of: f, gone: ws.target(f), begun: ws.n.clock.mono(), release: ws.n.gate.Hold(by.Slot)}
	var long func()
	if w.longWrites && w.chance(0.1) {
		ws.n.driver.Post(member.LongWrites{Until: ws.n.clock.mono() + w.between(0, 20*time.Second)})
	}
	if w.longWrites {
		long, _ = ws.long.Begin()
	}
	if long != nil {
		release := one.release
		one.release = func() {
			long()
			release()
		}
		w.Counts.LongWrites++
	}
	one.Attempt = writes.Attempt{Limits: writes.LimitsOf(&ws.n.cfg, left, long != nil)}
	f.awaits++
	if !w.chance(w.Net.Late) {
		ws.connected(one)
		return
	}
	// It waits for a connection. Another try may follow.
	w.after(w.between(0, 2*one.SendWithin), func() { ws.n.local(func() { ws.connected(one) }) })
}

// target is a wanderer for a flight to delete; nil: it writes its own object.
func (ws *workers) target(f *flight) *streamtest.State {
	if !ws.w.wild || f.duty != "" || f.returned != nil || ws.w.rng.IntN(3) > 0 {
		return nil
	}
	for _, has := range ws.n.informer.Has[len(ws.w.objects.of):] {
		if has.Exists && has.Slot == f.key.slot {
			return &has
		}
	}
	return nil
}

// since is how long ago the write began, by the node's clock.
func (ws *workers) since(one *sent) time.Duration { return ws.n.clock.mono() - one.begun }

// connected sends a write for which there is a connection.
func (ws *workers) connected(one *sent) {
	if one.Begin(ws.since(one)) {
		ws.w.Counts.NeverSent++
		if never, _ := one.NeverSent(); !never {
			ws.w.violate("never sent", "%s takes a write for sent that had no connection", ws.n.ID)
		}
		ws.returns(one, writes.NeverSent, func() {})
		return
	}
	one.Connect()
	w := ws.w
	if !w.chance(w.Net.Stall * 3) {
		ws.sendWrite(one)
		return
	}
	// The process stops between the check and the sending.
	one.stalled = true
	ws.n.Pause(w.between(0, 30*time.Second))
	ws.n.local(func() { ws.sendWrite(one) })
}

// sendWrite sends a write, which the API server may take so long for.
func (ws *workers) sendWrite(one *sent) {
	w := ws.w
	one.Wrote(ws.since(one), true)
	w.Counts.Writes++
	arrives := min(w.delay(time.Millisecond, 30*time.Millisecond), transit)
	commits := arrives + min(w.delay(time.Millisecond, 30*time.Millisecond), one.Timeout)
	if w.chance(w.Net.Late) || one.Long && w.chance(0.3) {
		w.Counts.LateWrites++
		commits = arrives + w.between(0, one.Timeout)
	}
	answer := func(record func()) {
		ws.n.local(func() { ws.returns(one, writes.Answered, record) })
	}
	if w.chance(w.Net.LoseResponse+w.Net.Late) || ws.n.Link.deaf > w.now {
		// The client gives up, at its own deadline or with its patience.
		wait := w.between(0, max(one.Patience-ws.since(one), 0))
		w.after(ws.n.clock.takes(wait), func() {
			ws.n.local(func() { ws.returns(one, writes.Unknown, nil) })
		})
		answer = func(func()) {}
	}
	w.after(arrives, func() {
		if w.fenced(ws.n) {
			w.Counts.Fenced++
			answer(func() {})
			return
		}
		deceived := w.deceived(ws.n)
		w.at(w.now+commits-arrives, func() {
			done := w.commit(ws.n, one, deceived)
			version := w.version
			answer(func() { ws.noteAnswer(one, done, version) })
		})
	})
}

// returns ends a write for its client. record says what an answer says that it did.
func (ws *workers) returns(one *sent, outcome writes.Outcome, record func()) {
	f := one.of
	f.awaits--
	at := ws.since(one)
	writes.End(outcome, one.Settled(at)-at, writes.Effects{
		Answered: record, Lost: func() { ws.noteLost(one) }, Release: one.release,
		After: func(wait time.Duration, do func()) {
			ws.w.after(ws.n.clock.takes(wait), func() { ws.n.local(do) })
		},
	})
	if f.returns {
		ws.finish(f)
	}
	ws.n.run()
}

// commit has a write take effect. It says whether it did: a wanderer may have gone, or be another by now.
func (w *World) commit(n *Node, one *sent, deceived bool) (done bool) {
	k, o := one.of.key, &w.objects
	switch {
	case !w.wild:
		w.version++
	case one.of.duty != "":
	case one.gone == nil:
		w.change(o.state(k.index()))
		o.of[k.index()].wrote, o.of[k.index()].wroteBy = w.version, n
	default:
		is := o.state(one.gone.Name)
		if !is.Exists || is.UID != one.gone.UID {
			return !is.Exists
		}
		if was := is; was.Slot == k.slot && was.In && was.Label == was.Slot {
			o.removed[was.Name-len(o.of)] = removed{State: was, by: n}
		}
		is.Exists = false
		w.change(is)
		w.Counts.Deleted++
	}
	excuse := ""
	switch {
	case deceived:
		excuse = oldCopy
	case one.Long && one.stalled: // within the fence's lag it is admitted, and then it outlasts FenceDelay
		excuse = "a pause in the middle of sending a long write"
	}
	w.checkWrite(n, one.of, excuse)
	return true
}

// removed is a wanderer that a member deleted.
type removed struct {
	streamtest.State
	by *Node
}

// noteAnswer notes the answer to a write. Those to deletions tell no version.
func (ws *workers) noteAnswer(one *sent, done bool, version uint64) {
	k := one.of.key
	switch {
	case !ws.w.wild || one.of.duty != "" || !done:
	case one.gone == nil:
		ws.record.Note(place(k.slot), text(version))
	default:
		ws.record.Deleted(place(k.slot), types.NamespacedName{Name: strconv.Itoa(one.gone.Name)}, wandererUID(*one.gone))
	}
}

// noteLost notes that nobody will tell the outcome of a write.
func (ws *workers) noteLost(one *sent) {
	if ws.w.wild && one.of.duty == "" {
		ws.record.Lost(place(one.of.key.slot))
	}
}

const (
	// settlePatience is how long a node waits for its informer to show deletions, settleTimeout how long for a version.
	settlePatience = 100 * time.Millisecond
	settleTimeout  = time.Second
)

// settle finds the versions of what was written in a slot, and calls then. See delivery.Share.Settle.
func (ws *workers) settle(s slot.Slot, then func()) {
	if !ws.record.Owes(s) {
		then()
		return
	}
	w, set := ws.w, slot.SetOf(slot.Range{First: s, Last: s})
	w.Counts.Settled++
	wait := time.Duration(0)
	if ws.record.Awaits(set) {
		wait = settlePatience
	}
	w.after(wait, func() {
		ws.n.local(func() {
			ws.record.Awaits(set)
			proofs := ws.record.Unproved(set)[website.Kind]
			if len(proofs) == 0 {
				ws.n.answered(then)
				return
			}
			ws.readVersion(func(version string) {
				for _, p := range proofs {
					if version == "" {
						ws.record.Unread(p)
					} else {
						ws.record.Prove(p, version)
					}
				}
				ws.n.answered(then)
			})
		})
	})
}

// readVersion reads the version of all objects. It is "" where nobody answers in time.
func (ws *workers) readVersion(then func(version string)) {
	w := ws.w
	w.after(w.delay(time.Millisecond, 30*time.Millisecond), func() {
		version, wait := text(w.version), w.delay(time.Millisecond, 30*time.Millisecond)
		if ws.n.informer.silent() || w.chance(w.Net.LoseResponse) {
			version, wait = "", settleTimeout
		}
		w.after(wait, func() { ws.n.local(func() { then(version) }) })
	})
}

// leaves are the versions that the next owner of drained slots has to reach.
func (ws *workers) leaves(set slot.Set) table.Versions {
	w := ws.w
	if w.opts.Leaves != nil {
		return w.opts.Leaves()
	}
	hash, duties := w.split(set)
	if w.wild && !hash.Empty() {
		out := ws.record.Versions(hash)
		ledger.Raise(out, website.Kind, ws.n.informer.core.Highest(hash.Slots()))
		return out
	}
	latest := uint64(0)
	for _, s := range hash.Slots() {
		latest = max(latest, w.slots[s].version+1)
	}
	for _, s := range duties.Slots() {
		latest = max(latest, w.slots[s].version)
	}
	return table.Versions{website.Kind: text(latest)}
}
