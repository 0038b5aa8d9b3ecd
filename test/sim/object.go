package sim

import (
	"fmt"
	"sort"
	"strconv"
	"time"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// objects are what the API servers hold of the one kind that members work on: keysPerSlot objects in each slot, which
// members reconcile and which are always there, and wanderers. These nobody reconciles: they come and go and, as the
// kind allows, change slots, are replaced by namesakes and have wrong labels. Versions are numbers from 1.
type objects struct {
	kind  stream.Config
	names []stream.Name
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

// state is an object in one state.
type state struct {
	name, uid int
	version   uint64
	slot      slot.Slot
	label     slot.Slot // what a selector sees
	in        bool      // it lies in a slot
	exists    bool
}

// change is what happened to a name. The state before has the version of the change, as DELETED events show it.
type change struct {
	at            time.Duration
	before, after state
	was, is       stream.Object
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
		kind: kind, names: make([]stream.Name, primary+wanderers), history: make([][]*change, primary+wanderers),
		wrong: make([]uint64, primary+wanderers), of: make([]object, primary),
	}
	for i := range w.objects.names {
		w.objects.names[i] = stream.Name{Name: strconv.Itoa(i)}
		if i < primary {
			s := slot.Slot(i / keysPerSlot)
			w.change(state{name: i, uid: i, slot: s, label: s, in: true, exists: true})
		}
	}
	w.objects.uids = primary
}

// wanders says that the name is one of those.
func (o *objects) wanders(name int) bool { return name >= len(o.of) }

// state is what is so of a name now.
func (o *objects) state(name int) state { return o.asOf(name, uint64(len(o.log))) }

// asOf is what was so at a version.
func (o *objects) asOf(name int, version uint64) state {
	h := o.history[name]
	i := sort.Search(len(h), func(i int) bool { return h[i].after.version > version })
	if i == 0 {
		return state{name: name}
	}
	return h[i-1].after
}

// selected says that a selector of slots selects an object.
func (o *objects) selected(s state, asked slot.Set) bool {
	return s.exists && (!o.kind.Selects || asked.Has(s.label))
}

// event is what a watch of slots tells of a change, if anything.
func (o *objects) event(c *change, asked slot.Set) (stream.Event, bool) {
	was, is := o.selected(c.before, asked), o.selected(c.after, asked)
	switch {
	case is && was:
		return stream.Event{Type: stream.Modified, Object: c.is}, true
	case is:
		return stream.Event{Type: stream.Added, Object: c.is}, true
	case was:
		return stream.Event{Type: stream.Deleted, Object: c.was}, true
	}
	return stream.Event{}, false
}

// as is a state as the stream sees it.
func (o *objects) as(s *state) stream.Object {
	return stream.Object{
		Name: o.names[s.name], UID: strconv.Itoa(s.uid), Version: text(s.version), Slot: s.slot, In: s.in,
		Right: s.label == s.slot, Body: s,
	}
}

func text(version uint64) string { return strconv.FormatUint(version, 10) }

func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}

// change makes the next version of all objects, and tells the watches.
func (w *World) change(to state) {
	o := &w.objects
	w.version++
	c := &change{at: w.now, before: o.state(to.name), after: to}
	c.before.version, c.after.version = w.version, w.version
	c.was, c.is = o.as(&c.before), o.as(&c.after)
	o.log = append(o.log, c)
	o.history[to.name] = append(o.history[to.name], c)
	switch {
	case !o.kind.Selects || to.exists && to.label == to.slot && to.in:
		o.wrong[to.name] = 0
	case to.exists && o.wrong[to.name] == 0:
		o.wrong[to.name] = w.version
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
	if is.exists {
		switch n := w.rng.IntN(10); {
		case n < 3:
			is.exists = false
		case n < 6 && o.kind.Moves:
			is.slot, is.in = some(), w.rng.IntN(6) > 0
			if mostly() {
				is.label = is.slot
			}
		case n < 7 && o.kind.Selects:
			is.label = some()
		case n < 9:
			is.label = is.slot
		}
	} else {
		o.uids++
		is.exists, is.uid, is.in = true, o.uids, true
		if is.slot = slot.Slot(is.name % o.kind.Slots); o.kind.Moves || o.kind.Namesakes {
			is.slot = some()
		}
		if is.label = is.slot; o.kind.Selects && !mostly() {
			is.label = some()
		}
	}
	w.change(is)
	w.logf("a user changes %v", o.state(is.name))
}

// relabel makes all labels right, as the labeller does in the end.
func (w *World) relabel() {
	for name := len(w.objects.of); name < len(w.objects.names); name++ {
		if is := w.objects.state(name); is.exists && is.label != is.slot {
			is.label = is.slot
			w.change(is)
		}
	}
}

// String tells it for traces.
func (s state) String() string {
	if !s.exists {
		return fmt.Sprintf("object %d: gone at %d", s.name, s.version)
	}
	return fmt.Sprintf("object %d (%d): in slot %v at %d, label %v, in=%v",
		s.name, s.uid, s.slot, s.version, s.label, s.in)
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
