package sim

import (
	"slices"
	"strconv"
	"time"

	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// informer is what a node knows of the objects, in a deep world: of the slots it holds, what a list showed and what came since.
// It models package delivery: a list of a slot is consistent, the stream may lag.
type informer struct {
	n      *Node
	server int
	// pos is the version up to which changes were received.
	pos  uint64
	held slot.Set
	// base is, by slot, the version of the list that made it complete; round tells that list from earlier ones, and is
	// above listed while one is under way.
	base, round, listed []uint64
	// told is the highest version that the node wrote in the slot, as answers told.
	told        []uint64
	last, until time.Duration
	breaks      int
	cutOff      bool
	waiting     []wait
}

// wait is for a position of the stream.
type wait struct {
	version uint64
	do      func()
}

// start lists the objects as the server shows them, and follows them.
func (in *informer) start(n *Node) {
	slots := int(n.w.opts.Slots)
	*in = informer{n: n, server: n.server, told: make([]uint64, slots)}
	in.base, in.round, in.listed = make([]uint64, slots), make([]uint64, slots), make([]uint64, slots)
	in.relist()
}

// relist takes the objects as old as the server shows them, though not older than before: a list of any version.
func (in *informer) relist() {
	shown := in.shown()
	if shown < in.n.w.version {
		in.n.w.Counts.OldLists++
	}
	in.pos, in.cutOff = shown, false
	in.follow()
	for _, s := range in.held.Slots() {
		for i := range keysPerSlot {
			in.notify(key{s, i})
		}
	}
}

// shown is the version that the server shows to who takes any, from the informer's position on.
func (in *informer) shown() uint64 {
	w := in.n.w
	shown := w.version
	for shown > in.pos && w.servers[in.server].shows(w.objects.log[shown-1].at) > w.now {
		shown--
	}
	return shown
}

// follow receives what came after pos.
func (in *informer) follow() {
	for v := in.pos + 1; v <= in.n.w.version; v++ {
		in.offer(v)
	}
}

// offer receives a change, after a while.
func (in *informer) offer(version uint64) {
	w := in.n.w
	if in.cutOff {
		return
	}
	shown := w.servers[in.server].shows(w.objects.log[version-1].at)
	in.last = max(in.last, in.until, shown, w.now+w.delay(time.Millisecond, 30*time.Millisecond))
	mine := in.breaks
	w.at(in.last, func() {
		if in.breaks == mine {
			in.n.local(func() {
				if in.breaks == mine {
					in.take(version)
				}
			})
		}
	})
}

func (in *informer) take(version uint64) {
	in.pos = version
	in.notify(in.n.w.objects.log[version-1].key)
	waiting := in.waiting
	in.waiting = nil
	for _, wait := range waiting {
		in.reach(wait.version, wait.do)
	}
}

// reach calls do once the stream has come to a version.
func (in *informer) reach(version uint64, do func()) {
	if in.pos >= version {
		do()
		return
	}
	in.waiting = append(in.waiting, wait{version, do})
}

// notify is the event handler: the key is reconciled if the gate admits it.
func (in *informer) notify(k key) {
	if !in.held.Has(k.slot) {
		return
	}
	in.n.w.after(in.n.w.delay(time.Millisecond, 50*time.Millisecond), func() { in.n.local(func() { in.n.Try(k.slot, k.n) }) })
}

// cut breaks the stream, which goes on from its position after a moment, or lists anew where that is compacted.
func (in *informer) cut() {
	w := in.n.w
	in.breaks++
	in.cutOff = true
	mine := in.breaks
	w.after(w.between(30*time.Millisecond, 2*time.Second), func() {
		if in.breaks != mine || in.n.Dead {
			return
		}
		if w.servers[in.server].down > w.now || w.chance(0.5) {
			in.server = w.other(in.server)
		}
		switch {
		case w.servers[in.server].down > w.now:
			in.cut()
		case in.pos < w.objects.compacted:
			w.Counts.Compacted++
			w.logf("the informer of %s must list again: 410", in.n.ID)
			in.relist()
		default:
			in.cutOff = false
			in.follow()
		}
	})
}

// sees is the version of an object in the store.
func (in *informer) sees(k key) uint64 {
	return in.n.w.objects.asOf(k, max(in.pos, in.base[k.slot]))
}

// hold lists those of the slots that are not held yet.
func (in *informer) hold(slots slot.Set, d time.Duration, then func()) {
	if slots = slots.Minus(in.held).Minus(in.listing()); slots.Empty() {
		then()
		return
	}
	in.list(slots, d, then)
}

// list lists the slots consistently, in pages, and calls then when they are complete. Where the position of the first page is
// compacted meanwhile, it begins anew.
func (in *informer) list(slots slot.Set, d time.Duration, then func()) {
	for _, s := range slots.Slots() {
		in.round[s]++
	}
	version := in.n.w.version
	if in.n.w.spoiled.oldLists {
		version = in.shown()
	}
	in.page(slots, slices.Clone(in.round), version, 1+in.n.w.rng.IntN(3), d, then)
}

// slowest is how long a page takes at most: a client gives up after that.
const slowest = 30 * time.Second

func (in *informer) page(slots slot.Set, rounds []uint64, version uint64, left int, d time.Duration, then func()) {
	w := in.n.w
	w.after(min(w.delay(d, 4*d), slowest), func() {
		in.n.local(func() {
			switch {
			case in.silent():
				in.page(slots, rounds, w.version, left, max(d, time.Second), then) // no answer: all of it again
			case version < w.objects.compacted:
				w.Counts.Compacted++
				w.logf("a list of %s begins anew: 410", in.n.ID)
				in.page(slots, rounds, w.version, left, d, then)
			case left > 1:
				in.page(slots, rounds, version, left-1, d, then)
			default:
				for _, s := range slots.Slots() {
					if in.round[s] == rounds[s] {
						in.held.Add(s)
						in.listed[s] = rounds[s]
						in.base[s] = max(in.base[s], version)
					}
				}
				then()
			}
		})
	})
}

// release drops the objects of slots.
func (in *informer) release(slots slot.Set) {
	if in.n.Stopped == nil && in.held.Intersect(slots) != (slot.Set{}) {
		in.n.w.Coverage.Rules[10]++
	}
	in.held = in.held.Minus(slots)
	for _, s := range slots.Slots() {
		in.round[s]++
		in.base[s], in.listed[s] = 0, in.round[s]
	}
}

// load makes the stores complete for what a Load is about: what came from a live owner is followed up to what that saw or wrote,
// all else is listed.
func (in *informer) load(a member.Load, then func()) {
	missing := a.Slots.Minus(in.held)
	handed, err := strconv.ParseUint(a.Versions["Website"], 10, 64)
	switch {
	case a.Held:
		in.n.w.after(time.Millisecond, func() { in.n.local(then) })
	case isHanded(a) && err == nil && missing.Empty():
		in.reach(handed, then)
	case isHanded(a) && err == nil:
		in.list(missing, in.n.Slow.Load, func() { in.reach(handed, then) })
	default:
		before := a.Slots.Minus(missing).Union(a.Slots.Intersect(in.listing()))
		left := 2
		both := func() {
			if left--; left == 0 {
				then()
			}
		}
		in.hold(missing, in.n.Slow.Load, both)
		in.latest(before, both)
	}
}

// listing are the slots of which a list is under way.
func (in *informer) listing() slot.Set {
	var set slot.Set
	for s, round := range in.listed {
		if round < in.round[s] {
			set.Add(slot.Slot(s))
		}
	}
	return set
}

// latest follows slots that are held, or being listed, to a version that is read now. Where that takes long, it lists
// them.
func (in *informer) latest(slots slot.Set, then func()) {
	w := in.n.w
	if slots.Empty() {
		then()
		return
	}
	if in.silent() {
		in.list(slots, in.n.Slow.Load, then)
		return
	}
	version := w.version
	if w.spoiled.oldVersions {
		version = in.pos
	}
	limit := w.now + w.between(200*time.Millisecond, 5*time.Second)
	var look func()
	look = func() {
		missing := slots.Minus(in.held)
		switch {
		case in.pos >= version && missing.Empty():
			then()
		case w.now >= limit:
			in.list(slots, in.n.Slow.Load, then)
		default:
			w.after(10*time.Millisecond, func() { in.n.local(look) })
		}
	}
	w.after(w.delay(time.Millisecond, 50*time.Millisecond), func() { in.n.local(look) })
}

// silent says that no API server answers the node.
func (in *informer) silent() bool {
	w := in.n.w
	return w.Net.Down || in.n.mute > w.now || in.n.deaf > w.now || w.servers[0].down > w.now && w.servers[1].down > w.now
}

func isHanded(a member.Load) bool { return a.Cause == table.CauseHanded }
