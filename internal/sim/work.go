package sim

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/gate"
	"github.com/rota-dev/rota/slot"
)

// key is a key of the modelled workload: keysPerSlot in each slot.
type key struct {
	slot slot.Slot
	n    int
}

const keysPerSlot = 2

func (k key) gate() gate.Key {
	return gate.Key{Queue: "sim", Namespace: k.slot.String(), Name: strconv.Itoa(k.n)}
}

// work is the modelled workers of a node.
type work struct {
	flights map[key]*flight
	// deletions are keys whose object is gone, known and not reconciled.
	deletions []key
	// busy is until when no worker takes a deletion; left are slots whose drain leaves them to the next owner; held are
	// slots that this node holds.
	busy       map[key]time.Duration
	left, held slot.Set
	opened     []slot.Slot
	serial     int // of duties begun
}

// unknownMargin is what production adds to the timeout of a write of unknown outcome, by its own clock.
const unknownMargin = time.Second

// flight is a key being reconciled.
type flight struct {
	key   key
	epoch uint64
	ctx   context.Context //nolint:containedctx // the gate cancels it
	leave func()
	// unknown is the real time until which a write of it may be admitted.
	unknown time.Duration
	// sending: a write was checked and not sent yet.
	sending, over bool
	// gone: it reconciles a deletion.
	gone bool
	// stuck: it does not look at its context. table is the UID of the table by which it began, then.
	stuck bool
	table string
	// seen is the version of the object that it began with, awaits the writes whose answers it waits for.
	seen   uint64
	awaits int
	// duty: it is a duty. slow: it takes long to return.
	duty, slow bool
}

// startWork tries a key now and then, whatever the gate says.
func (n *Node) startWork() {
	pace := 300 * time.Millisecond // there are users, too
	if n.w.over {
		pace = 500 * time.Millisecond
	}
	n.w.after(n.w.delay(pace, 3*pace), func() {
		if n.Dead {
			return
		}
		n.local(func() {
			k := key{slot.Slot(n.w.rng.IntN(int(n.w.opts.Slots))), n.w.rng.IntN(keysPerSlot)}
			if len(n.work.opened) > 0 && n.w.rng.IntN(5) > 0 {
				k.slot = n.work.opened[n.w.rng.IntN(len(n.work.opened))]
			}
			if n.w.rng.IntN(30) == 0 && n.gate.Owns(k.slot) && n.work.flights[k] == nil &&
				!slices.Contains(n.work.deletions, k) {
				n.remove(k)
				n.w.after(n.w.between(0, 2*time.Second), func() { n.local(func() { n.Try(k.slot, k.n) }) })
			} else {
				n.Try(k.slot, k.n)
			}
		})
		n.startWork()
	})
}

// tryAll tries keys that the gate gave back.
func (n *Node) tryAll(keys []gate.Key) {
	keys = slices.DeleteFunc(keys, func(k gate.Key) bool {
		s, _ := strconv.Atoi(k.Namespace)
		if n.w.isDuty(slot.Slot(s)) {
			n.runDuty(slot.Slot(s))
			return true
		}
		return false
	})
	slices.SortFunc(keys, func(a, b gate.Key) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	for _, k := range keys {
		s, _ := strconv.Atoi(k.Namespace)
		i, _ := strconv.Atoi(k.Name)
		n.Try(slot.Slot(s), i)
	}
}

// enqueue offers every object of a slot that was opened. Those on which nothing waits are left out, to save time.
func (n *Node) enqueue(s slot.Slot) {
	for i := range keysPerSlot {
		k := key{s, i}
		if n.w.spoiled.forgotten {
			continue
		}
		if of := &n.w.objects.of[k.index()]; of.asked > of.reconciled {
			n.informer.notify(k)
		}
	}
}

// Try asks the gate for a key; it says whether it was admitted.
func (n *Node) Try(s slot.Slot, i int) bool {
	k := key{s, i}
	if n.Dead || n.work.flights[k] != nil {
		return false
	}
	gone := slices.Contains(n.work.deletions, k)
	if gone && n.work.busy[k] > n.w.now {
		return false
	}
	ctx, leave, verdict := n.gate.Enter(context.Background(), s, k.gate(), gone)
	switch {
	case verdict == gate.Refused:
		n.w.Coverage.Rules[11]++
	case verdict == gate.Parked || verdict == gate.Expired:
		n.w.Coverage.Rules[5]++
	}
	if verdict != gate.Admitted {
		return false
	}
	if gone {
		n.work.deletions = slices.DeleteFunc(n.work.deletions, func(d key) bool { return d == k })
		delete(n.work.busy, k)
	}
	n.w.Counts.Admissions++
	epoch, _ := gate.EpochFrom(ctx)
	f := &flight{key: k, epoch: epoch, ctx: ctx, leave: leave, gone: gone}
	n.checkAdmitted(f)
	n.work.flights[k] = f
	if n.w.wild {
		n.begin(f)
	}
	lasts := 20 * time.Millisecond
	if n.w.wild {
		lasts = n.w.between(time.Millisecond, 500*time.Millisecond)
		if n.w.rng.IntN(50) == 0 {
			lasts = n.w.between(time.Second, 20*time.Second) // stuck
		}
		n.w.after(n.w.between(0, lasts), func() { n.local(func() { n.write(f) }) })
	} else {
		n.write(f)
	}
	n.w.after(lasts, func() { n.local(func() { n.finish(f) }) })
	return true
}

// finish ends a flight, once none of its writes can be admitted any more.
func (n *Node) finish(f *flight) {
	if f.over {
		return
	}
	if f.sending || f.awaits > 0 || f.unknown > n.w.now {
		n.w.at(max(f.unknown, n.w.now+time.Millisecond), func() { n.local(func() { n.finish(f) }) })
		return
	}
	f.over = true
	if n.w.wild && !f.duty {
		n.complete(f)
	}
	delete(n.work.flights, f.key)
	n.unfinished(f)
	if f.duty {
		n.dutyEnded(f)
	}
	f.leave()
	n.run()
}

// begin notes what a reconcile sees.
func (n *Node) begin(f *flight) {
	f.seen = n.informer.sees(f.key)
	if of := &n.w.objects.of[f.key.index()]; f.seen > of.seen {
		of.seen, of.seenBy = f.seen, n
	}
}

// complete notes what was reconciled, unless it was cut short. It begins anew where the object has changed, and where
// it was cut short: a queue keeps a key that comes meanwhile until the reconcile has ended, as when the slot opens
// again.
func (n *Node) complete(f *flight) {
	of := &n.w.objects.of[f.key.index()]
	if f.ctx.Err() == nil && f.seen > of.reconciled {
		if of.asked > of.reconciled && of.asked <= f.seen {
			n.w.Counts.Reconciled++
		}
		of.reconciled = f.seen
	}
	if (n.informer.sees(f.key) > f.seen || f.ctx.Err() != nil) && of.asked > of.reconciled {
		n.informer.notify(f.key)
	}
}

// write writes something to the API server for a key, also after a leaving member has cut its reconcile short, as with
// context.WithoutCancel.
func (n *Node) write(f *flight) {
	left := n.deadline - n.late()
	if f.over || gate.Ended(f.ctx) != nil || left <= 0 {
		return
	}
	w := n.w
	timeout := min(n.cfg.WriteTimeout, left)
	send := func() {
		f.sending = false
		w.Counts.Writes++
		arrives := min(w.delay(time.Millisecond, 30*time.Millisecond), transit)
		commits := arrives + min(w.delay(time.Millisecond, 30*time.Millisecond), timeout)
		if w.chance(w.Net.Late) {
			w.Counts.LateWrites++
			commits = arrives + w.between(0, timeout)
		}
		f.unknown = max(f.unknown, w.now+commits+time.Millisecond)
		known := true
		if w.chance(w.Net.LoseResponse+w.Net.Late) || n.deaf > w.now {
			// Of unknown outcome: in flight until it cannot be admitted any more.
			f.unknown, known = w.now+time.Duration(float64(timeout+unknownMargin)/n.rate), false
		}
		answer := func(func()) {}
		if known {
			f.awaits++
			answer = func(do func()) {
				n.local(func() {
					f.awaits--
					do()
				})
			}
		}
		w.after(arrives, func() {
			if w.fenced(n) {
				w.Counts.Fenced++
				answer(func() {})
				return
			}
			deceived := w.deceived(n)
			w.at(w.now+commits-arrives, func() {
				w.checkWrite(n, f, deceived)
				version := w.version
				answer(func() {
					if w.wild && !f.duty {
						w.objects.told(n, f.key, version)
					}
				})
			})
		})
	}
	if n.mute > w.now {
		return // it does not get there
	}
	if w.chance(w.Net.Stall * 3) {
		// The process stops between the check and the sending.
		f.sending = true
		n.Pause(w.between(0, 30*time.Second))
		n.local(send)
		return
	}
	send()
}

// cancelled ends the flights whose context is cancelled: soon, as those reconcilers do that look at it.
func (n *Node) cancelled() {
	for _, k := range n.flying() {
		f := n.work.flights[k]
		switch {
		case f.ctx.Err() == nil || f.stuck:
		case f.duty:
			n.returns(f)
		default:
			n.w.after(n.w.delay(time.Millisecond, 100*time.Millisecond), func() { n.local(func() { n.finish(f) }) })
		}
	}
}

// flying returns the keys in flight in a fixed order.
func (n *Node) flying() []key {
	keys := make([]key, 0, len(n.work.flights))
	for k := range n.work.flights {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int { return (int(a.slot)-int(b.slot))*keysPerSlot + a.n - b.n })
	return keys
}
