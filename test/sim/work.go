package sim

import (
	"context"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// key is a key of the modelled workload: keysPerSlot in each slot.
type key struct {
	slot slot.Slot
	n    int
}

const keysPerSlot = 2

// name is how the key stands in queues and tables.
func (k key) name() types.NamespacedName {
	return types.NamespacedName{Namespace: k.slot.String(), Name: strconv.Itoa(k.n)}
}

func keyOf(name types.NamespacedName) key {
	s, _ := strconv.Atoi(name.Namespace)
	n, _ := strconv.Atoi(name.Name)
	return key{slot.Slot(s), n}
}

// workers are the workers of a node, whose keys a production controller has.
type workers struct {
	controller *work.Controller
	items      items
	flights    map[key]*flight
	tasks      []*flight
	// gone are keys whose objects do not exist, as the node sees it. left are slots whose drain leaves them to the next
	// owner. held are slots that this node holds.
	gone       map[key]bool
	left, held slot.Set
	opened     []slot.Slot
	busy       int // workers that have a key
	// gathering are slots that were opened whose objects are not enqueued.
	gathering []*gathering
}

// crew is how many workers a node has.
const crew = 4

// controllerName is that of the nodes' controller.
const controllerName = "sim"

// employ gives a node its workers.
func (n *Node) employ() {
	n.work = workers{flights: map[key]*flight{}, gone: map[key]bool{}}
	n.work.items.init()
	n.work.controller = work.New(work.Env{
		Name: controllerName, Kind: goneKind, Gate: n.gate, Objects: ownObjects{n}, Enqueue: n.enqueue,
		Now:  n.mono,
		Wall: func() time.Time { return time.Unix(n.time().Wall, 0) },
		After: func(wait time.Duration, do func()) {
			n.w.after(wait, func() { n.local(do) })
		},
		Asked: func(v gate.Verdict) {
			switch v {
			case gate.Refused:
				n.w.Coverage.Rules[11]++
			case gate.Parked, gate.Expired:
				n.w.Coverage.Rules[5]++
			case gate.Unknown, gate.Admitted:
			}
		},
	})
}

// ownObjects are the objects that a node has of the modelled kind. Names tell slots.
type ownObjects struct{ n *Node }

func (o ownObjects) Locate(name types.NamespacedName) (slot.Slot, bool) {
	return keyOf(name).slot, true
}

func (o ownObjects) Stored(name types.NamespacedName) (slot.Slot, bool) { return o.Locate(name) }

func (o ownObjects) UID(name types.NamespacedName) (types.UID, bool) {
	k := keyOf(name)
	return "", !o.n.work.gone[k] && (!o.n.w.wild || o.n.informer.Has[k.index()].Exists)
}

func (o ownObjects) Holds(s slot.Slot) bool { return o.n.work.held.Has(s) }

func (o ownObjects) Incomplete(slot.Slot) bool { return false }

func (o ownObjects) LedElsewhere() bool { return false }

// unknownMargin is what production adds to the timeout of a write of unknown outcome, by its own clock.
const unknownMargin = time.Second

// flight is a key being reconciled.
type flight struct {
	key   key
	epoch uint64
	ctx   context.Context //nolint:containedctx // the gate cancels it
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
	// returned is to be called when it returns; nil: it is no task.
	returned func()
	// duty is the name of the duty that it is; "": it is none. It returns err. slow: it takes long to return.
	duty            string
	done            func(error)
	err             error
	slow, returning bool
}

// startWork adds a key now and then, as handlers of other kinds do, and now and then one that the queue kept from
// before its slot was lost.
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
			switch {
			case n.w.rng.IntN(30) == 0 && n.gate.Owns(k.slot) && n.work.flights[k] == nil && !n.work.gone[k]:
				n.remove(k)
			case n.w.rng.IntN(10) > 0:
				n.add(k)
			case n.work.items.add(k):
				n.hire()
			}
		})
		n.startWork()
	})
}

// gather enqueues, after a while, what slots that were opened have.
func (n *Node) gather(set slot.Set, parked []gate.Key) {
	if !n.w.wild {
		return // nobody works
	}
	g := &gathering{}
	n.work.gathering = append(n.work.gathering, g)
	n.w.after(n.w.delay(time.Millisecond, 100*time.Millisecond), func() {
		n.local(func() {
			n.work.controller.Opened(set, n.unreconciledIn(set), parked)
			n.work.gathering = slices.DeleteFunc(n.work.gathering, func(one *gathering) bool { return one == g })
			for _, do := range g.then {
				n.answered(do)
			}
		})
	})
}

// gathering is of slots that were opened. then is done once their objects are enqueued.
type gathering struct{ then []func() }

// whenGathered calls do once the objects of all slots that were opened before are enqueued: a drain has to know of the
// deletions that the next owner's list does not show (rule R15).
func (n *Node) whenGathered(do func()) {
	left := len(n.work.gathering)
	if left == 0 {
		do()
		return
	}
	for _, g := range n.work.gathering {
		g.then = append(g.then, func() {
			if left--; left == 0 {
				do()
			}
		})
	}
}

// unreconciledIn returns the objects of slots of which something is to be done. The others are left out, to save time.
func (n *Node) unreconciledIn(set slot.Set) (keys []types.NamespacedName) {
	if n.w.spoiled.forgotten {
		return nil
	}
	for _, s := range set.Slots() {
		for i := range keysPerSlot {
			k := key{s, i}
			if of := &n.w.objects.of[k.index()]; of.asked > of.reconciled {
				keys = append(keys, k.name())
			}
		}
	}
	return keys
}

// Try has a worker take a key, and ask the gate for it, at once; it says whether it was admitted.
func (n *Node) Try(s slot.Slot, i int) bool {
	f := n.take(key{s, i})
	if f == nil {
		return false
	}
	n.write(f)
	n.w.after(20*time.Millisecond, func() { n.local(func() { n.finish(f) }) })
	return true
}

// take has a worker take a key, and ask the gate for it at once; nil: it is in flight, or was not admitted.
func (n *Node) take(k key) *flight {
	if n.Dead || n.work.flights[k] != nil {
		return nil
	}
	n.work.controller.Take(k.name())
	f := n.admit(k)
	if f == nil {
		n.done(k)
	}
	return f
}

// admit asks the gate for a key; nil: it was not admitted.
func (n *Node) admit(k key) *flight {
	a, ok := n.work.controller.Admit(context.Background(), k.name())
	if !ok {
		return nil
	}
	n.w.Counts.Admissions++
	epoch, _ := gate.EpochFrom(a.Context)
	by := work.Admitted{Gate: n.gate, Slot: a.Slot, Context: a.Context, UID: a.UID, CutShort: func() { n.add(k) }}
	f := &flight{key: k, epoch: epoch, ctx: by.In(a.Context), gone: a.Gone}
	if f.gone {
		n.w.logf("%s begins the deletion of %v", n.ID, k)
	}
	n.checkAdmitted(f)
	n.work.flights[k] = f
	return f
}

// reconcile has a worker reconcile a key that it took.
func (n *Node) reconcile(k key) {
	f := n.admit(k)
	if f == nil {
		n.done(k)
		return
	}
	n.begin(f)
	n.startTask(f)
	lasts := n.w.between(time.Millisecond, 500*time.Millisecond)
	if n.w.rng.IntN(50) == 0 {
		lasts = n.w.between(time.Second, 20*time.Second) // stuck
	}
	n.w.after(n.w.between(0, lasts), func() { n.local(func() { n.write(f) }) })
	n.w.after(lasts, func() { n.local(func() { n.finish(f) }) })
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
	if f.returned != nil {
		n.taskEnded(f)
		return
	}
	if f.duty != "" {
		delete(n.work.flights, f.key)
		n.dutyEnded(f)
		return
	}
	switch {
	case !n.w.wild:
		n.finished(f)
	case f.ctx.Err() == nil && n.w.rng.IntN(20) == 0: // it failed
		n.addAfter(f.key, n.w.between(10*time.Millisecond, 5*time.Second))
	default:
		n.complete(f)
		n.finished(f)
		if f.ctx.Err() == nil && n.w.rng.IntN(20) == 0 { // it asks to be called again
			n.addAfter(f.key, n.w.between(10*time.Millisecond, 20*time.Second))
		}
	}
	n.done(f.key)
}

// begin notes what a reconcile sees.
func (n *Node) begin(f *flight) {
	f.seen = n.informer.sees(f.key)
	if of := &n.w.objects.of[f.key.index()]; f.seen > of.seen {
		of.seen, of.seenBy = f.seen, n
	}
}

// complete notes what was reconciled, unless it was cut short.
func (n *Node) complete(f *flight) {
	of := &n.w.objects.of[f.key.index()]
	if f.ctx.Err() == nil && f.seen > of.reconciled {
		if of.asked > of.reconciled && of.asked <= f.seen {
			n.w.Counts.Reconciled++
		}
		of.reconciled = f.seen
	}
}

// cancelled ends the flights whose context is cancelled: soon, as those reconcilers do that look at it.
func (n *Node) cancelled() {
	n.dutiesEnd()
	for _, k := range n.flying() {
		f := n.work.flights[k]
		switch {
		case f.ctx.Err() == nil || f.stuck:
		case f.duty != "":
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
