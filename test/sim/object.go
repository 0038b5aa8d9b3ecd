package sim

import (
	"fmt"
	"sort"
	"strconv"
	"time"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/streamtest"
)

// objects are what the API servers hold of the one kind that members work on: keysPerSlot objects in each slot, which
// members reconcile and which are always there, and wanderers. These nobody reconciles: they come and go and, as the
// kind allows, change slots, are replaced by namesakes and have wrong labels. Versions are numbers from 1.
type objects struct {
	kind stream.Config
	// log has the change that made version i+1 at i; history is the same by name.
	log     []*change
	history [][]*change
	// compacted is the version up to which the changes are forgotten.
	compacted uint64
	uids      int
	// wrong is, by name, the version since which its label has not been right without a break; 0: it is right.
	wrong []uint64
	of    []object // by key.index
	// removed are, by wanderer, those that members deleted last, from slots whose watches tell of it.
	removed [wanderers]removed
}

// change is what happened to a name at a time.
type change struct {
	at time.Duration
	streamtest.Change
}

// object is what happened to one that members reconcile.
type object struct {
	// asked is the latest change by a user; reconciled the latest version that a reconcile which came to its end had seen.
	asked, reconciled uint64
	// seen is the latest version that a reconcile saw, wrote the latest that one wrote.
	seen, wrote     uint64
	seenBy, wroteBy *Node
}

// wanderers is how many there are.
const wanderers = 8

func (k key) index() int { return int(k.slot)*keysPerSlot + k.n }

// populate makes the objects of a kind.
func (w *World) populate(kind stream.Config) {
	primary := int(w.opts.Slots) * keysPerSlot
	kind.Slots = int(w.opts.Slots)
	w.objects = objects{
		kind: kind, history: make([][]*change, primary+wanderers),
		wrong: make([]uint64, primary+wanderers), of: make([]object, primary),
	}
	for i := range primary {
		s := slot.Slot(i / keysPerSlot)
		w.change(streamtest.State{Name: i, UID: i, Slot: s, Label: s, In: true, Exists: true})
	}
	w.objects.uids = primary
}

// wanders says that the name is one of those.
func (o *objects) wanders(name int) bool { return name >= len(o.of) }

// state is what is so of a name now.
func (o *objects) state(name int) streamtest.State { return o.asOf(name, uint64(len(o.log))) }

// asOf is what was so at a version.
func (o *objects) asOf(name int, version uint64) streamtest.State {
	h := o.history[name]
	i := sort.Search(len(h), func(i int) bool { return h[i].State().Version > version })
	if i == 0 {
		return streamtest.State{Name: name}
	}
	return h[i-1].State()
}

func text(version uint64) string { return strconv.FormatUint(version, 10) }

func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}

// change makes the next version of all objects, and tells the watches.
func (w *World) change(to streamtest.State) {
	o := &w.objects
	w.version++
	c := &change{w.now, streamtest.NewChange(o.state(to.Name), to, w.version)}
	o.log = append(o.log, c)
	o.history[to.Name] = append(o.history[to.Name], c)
	switch {
	case !o.kind.Selects || to.Exists && to.Label == to.Slot && to.In:
		o.wrong[to.Name] = 0
	case to.Exists && o.wrong[to.Name] == 0:
		o.wrong[to.Name] = w.version
	}
	for _, n := range w.Nodes {
		if !n.Dead {
			n.informer.offer(w.version)
		}
	}
}

// users change objects now and then.
func (w *World) users() {
	w.after(w.between(20*time.Millisecond, 600*time.Millisecond), func() {
		if w.over {
			return
		}
		if w.rng.IntN(2) == 0 {
			w.wander()
		} else {
			k := key{slot.Slot(w.rng.IntN(int(w.opts.Slots))), w.rng.IntN(keysPerSlot)}
			w.change(w.objects.state(k.index()))
			w.objects.of[k.index()].asked = w.version
			w.logf("a user changes %v: version %d", k, w.version)
		}
		w.users()
	})
}

// wander has something happen to a wanderer.
func (w *World) wander() {
	o := &w.objects
	is := o.state(len(o.of) + w.rng.IntN(wanderers))
	some := func() slot.Slot { return slot.Slot(w.rng.IntN(int(w.opts.Slots))) }
	mostly := func() bool { return w.rng.IntN(3) > 0 }
	if is.Exists {
		switch n := w.rng.IntN(10); {
		case n < 3:
			is.Exists = false
		case n < 6 && o.kind.Moves:
			is.Slot, is.In = some(), w.rng.IntN(6) > 0
			if mostly() {
				is.Label = is.Slot
			}
		case n < 7 && o.kind.Selects:
			is.Label = some()
		case n < 9:
			is.Label = is.Slot
		}
	} else {
		o.uids++
		is.Exists, is.UID, is.In = true, o.uids, true
		if is.Slot = slot.Slot(is.Name % o.kind.Slots); o.kind.Moves || o.kind.Namesakes {
			is.Slot = some()
		}
		if is.Label = is.Slot; o.kind.Selects && !mostly() {
			is.Label = some()
		}
	}
	w.change(is)
	w.logf("a user changes %v", o.state(is.Name))
}

// relabel makes all labels right, as the labeller does in the end.
func (w *World) relabel() {
	for name := len(w.objects.of); name < len(w.objects.history); name++ {
		if is := w.objects.state(name); is.Exists && is.Label != is.Slot {
			is.Label = is.Slot
			w.change(is)
		}
	}
}

// missed names a change by a user that nobody has reconciled; empty: there is none.
func (w *World) missed() string {
	for i, of := range w.objects.of {
		if of.asked > of.reconciled {
			k := key{slot.Slot(i / keysPerSlot), i % keysPerSlot}
			return fmt.Sprintf("version %d of key %v, which a user wrote, is not reconciled", of.asked, k)
		}
	}
	return ""
}
