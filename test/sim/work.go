package sim

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
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
	w *World
	n *Node

	set        *controllers.Set
	controller *controllers.Controller
	items      items
	flights    map[key]*flight
	tasks      []*flight
	// gone are keys whose objects do not exist, as the node sees it. left are slots whose drain leaves them to the next
	// owner.
	gone   map[key]bool
	left   slot.Set
	opened []slot.Slot
	busy   int // workers that have a key
	faults *controllers.Faults
	record *ledger.Record
	long   gate.LongWrites
}

// crew is how many workers a node has.
const crew = 4

// controllerName is that of the nodes' controller.
const controllerName = "sim"

// employ gives a node its workers.
func (ws *workers) employ() {
	ws.flights, ws.gone = map[key]*flight{}, map[key]bool{}
	ws.items.init()
	ws.record = ws.recorded()
	ws.faults = controllers.NewFaults(ws.n.clock.mono, logr.Discard())
	ws.set = controllers.NewSet(controllers.Env{
		Share: &ws.n.share, Gate: ws.n.gate, Writes: noWrites{}, Faults: ws.faults, Log: logr.Discard(),
		Now:    ws.n.clock.mono,
		Wall:   func() time.Time { return time.Unix(ws.n.clock.time().Wall, 0) },
		After:  func(wait time.Duration, do func()) { ws.w.after(wait, func() { ws.n.local(do) }) },
		Runner: &ws.n.runner,
		Canary: func() *table.Canary { return &table.Canary{} },
		Asked: func(v gate.Verdict) {
			switch v {
			case gate.Refused:
				ws.w.Coverage.Rules[11]++
			case gate.Parked, gate.Expired:
				ws.w.Coverage.Rules[5]++
			case gate.Unknown, gate.Admitted:
			}
		},
		EmitNow: func(context.Context, member.Notify) {}, Dropped: func(string) {},
	})
	var err error
	if ws.controller, err = ws.set.New(controllerName, kind, nil, ws.enqueue); err != nil {
		panic(err)
	}
}

// noWrites counts no requests.
type noWrites struct{}

func (noWrites) Counting(ctx context.Context, _ *work.Requests) context.Context { return ctx }

func (noWrites) ByHand() bool { return true }

// flight is a key being reconciled.
type flight struct {
	key   key
	epoch uint64
	ctx   context.Context //nolint:containedctx // the gate cancels it
	// unknown is the real time until which a write by hand may be admitted.
	unknown time.Duration
	// returns: it returns once its writes have. over: it has returned.
	returns, over bool
	// gone: it reconciles a deletion.
	gone bool
	// stuck: it does not look at its context. table is the UID of the table by which it began, then.
	stuck bool
	table string
	// seen is the version of the object that it began with, awaits how many writes have not returned.
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
func (ws *workers) startWork() {
	pace := 300 * time.Millisecond // there are users, too
	if ws.w.over {
		pace = 500 * time.Millisecond
	}
	ws.w.after(ws.w.delay(pace, 3*pace), func() {
		if ws.n.Dead {
			return
		}
		ws.n.local(func() {
			k := key{slot.Slot(ws.w.rng.IntN(int(ws.w.opts.Slots))), ws.w.rng.IntN(keysPerSlot)}
			if len(ws.opened) > 0 && ws.w.rng.IntN(5) > 0 {
				k.slot = ws.opened[ws.w.rng.IntN(len(ws.opened))]
			}
			switch {
			case ws.w.rng.IntN(30) == 0 && ws.n.gate.Owns(k.slot) && ws.flights[k] == nil && !ws.gone[k]:
				ws.remove(k)
			case ws.w.rng.IntN(10) > 0:
				ws.add(k)
			case ws.items.add(k):
				ws.hire()
			}
		})
		ws.startWork()
	})
}

// Try has a worker take a key, and ask the gate for it, at once; it says whether it was admitted.
func (ws *workers) Try(s slot.Slot, i int) bool {
	f := ws.take(key{s, i})
	if f == nil {
		return false
	}
	ws.write(f)
	ws.w.after(20*time.Millisecond, func() { ws.n.local(func() { ws.finish(f) }) })
	return true
}

// take has a worker take a key, and ask the gate for it at once; nil: it is in flight, or was not admitted.
func (ws *workers) take(k key) *flight {
	if ws.n.Dead || ws.flights[k] != nil {
		return nil
	}
	ws.controller.Take(k.name())
	f := ws.admit(k)
	if f == nil {
		ws.done(k)
	}
	return f
}

// admit asks the gate for a key; nil: it was not admitted.
func (ws *workers) admit(k key) *flight {
	ctx, ok := ws.controller.Admit(context.Background(), k.name())
	if !ok {
		return nil
	}
	ws.w.Counts.Admissions++
	epoch, _ := gate.EpochFrom(ctx)
	by, _ := work.AdmittedBy(ctx, ws.n.gate)
	f := &flight{key: k, epoch: epoch, ctx: ctx, gone: by.UID == ""}
	if f.gone {
		ws.w.logf("%s begins the deletion of %v", ws.n.ID, k)
	}
	ws.n.checks.checkAdmitted(f)
	ws.flights[k] = f
	return f
}

// reconcile has a worker reconcile a key that it took.
func (ws *workers) reconcile(k key) {
	f := ws.admit(k)
	if f == nil {
		ws.done(k)
		return
	}
	ws.begin(f)
	ws.startTask(f)
	lasts := ws.w.between(time.Millisecond, 500*time.Millisecond)
	if ws.w.rng.IntN(50) == 0 {
		lasts = ws.w.between(time.Second, 20*time.Second) // stuck
	}
	ws.w.after(ws.w.between(0, lasts), func() { ws.n.local(func() { ws.write(f) }) })
	ws.w.after(lasts, func() { ws.n.local(func() { ws.finish(f) }) })
}

// finish ends a flight, once its writes have returned.
func (ws *workers) finish(f *flight) {
	if f.over {
		return
	}
	if f.returns = f.awaits > 0; f.returns {
		return
	}
	if f.unknown > ws.w.now {
		ws.w.at(f.unknown, func() { ws.n.local(func() { ws.finish(f) }) })
		return
	}
	f.over = true
	if f.returned != nil {
		ws.taskEnded(f)
		return
	}
	if f.duty != "" {
		delete(ws.flights, f.key)
		ws.n.Duties.dutyEnded(f)
		return
	}
	switch {
	case !ws.w.wild:
		ws.finished(f)
	case f.ctx.Err() == nil && ws.w.rng.IntN(20) == 0: // it failed
		ws.controller.Ended(f.key.name(), errFailed)
		ws.addAfter(f.key, ws.w.between(10*time.Millisecond, 5*time.Second))
	default:
		ws.complete(f)
		ws.finished(f)
		if f.ctx.Err() == nil && ws.w.rng.IntN(20) == 0 { // it asks to be called again
			ws.addAfter(f.key, ws.w.between(10*time.Millisecond, 20*time.Second))
		}
	}
	ws.done(f.key)
}

// begin notes what a reconcile sees.
func (ws *workers) begin(f *flight) {
	f.seen = ws.n.informer.sees(f.key)
	if of := &ws.w.objects.of[f.key.index()]; f.seen > of.seen {
		of.seen, of.seenBy = f.seen, ws.n
	}
}

// complete notes what was reconciled, unless it was cut short.
func (ws *workers) complete(f *flight) {
	of := &ws.w.objects.of[f.key.index()]
	if f.ctx.Err() == nil && f.seen > of.reconciled {
		if of.asked > of.reconciled && of.asked <= f.seen {
			ws.w.Counts.Reconciled++
		}
		of.reconciled = f.seen
	}
}

// cancelled ends the flights whose context is cancelled: soon, as those reconcilers do that look at it.
func (ws *workers) cancelled() {
	ws.n.Duties.dutiesEnd()
	for _, k := range ws.flying() {
		f := ws.flights[k]
		switch {
		case f.ctx.Err() == nil || f.stuck:
		case f.duty != "":
			ws.n.Duties.returns(f)
		default:
			ws.w.after(ws.w.delay(time.Millisecond, 100*time.Millisecond), func() { ws.n.local(func() { ws.finish(f) }) })
		}
	}
}

// flying returns the keys in flight in a fixed order.
func (ws *workers) flying() []key {
	keys := make([]key, 0, len(ws.flights))
	for k := range ws.flights {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int { return (int(a.slot)-int(b.slot))*keysPerSlot + a.n - b.n })
	return keys
}
