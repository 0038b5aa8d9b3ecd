package sim

import (
	"time"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/streamtest"
)

// informer is what a node knows of the objects, in a life: the production stream, with a watch and requests that are
// modelled. It does what package delivery does: this file the watch and the lists of the whole (delivery's pump),
// task.go the lists of slots (driver), lookup.go what is in doubt (confirm), load.go what members wait for (hold).
type informer struct {
	n      *Node
	server int
	core   *stream.Stream
	*streamtest.Store

	// next is the version up to which the watch has told, asked are the slots that it was opened for.
	next  uint64
	asked slot.Set
	// whole: a list of the whole is under way. jobs wait for its end, as nothing is sent meanwhile.
	whole bool
	jobs  []func()
	// last is when the latest event on its way arrives; until: none arrives before. breaks tells what was sent before
	// the watch broke; cutOff: it is not open.
	last, until time.Duration
	breaks      int
	cutOff      bool

	// wanted are the slots to hold. anew are those that were not when a Load began.
	wanted, anew slot.Set
	busy         bool // the driver is at work
	waits        []wait
	looks        int // tells looks for what is in doubt from earlier ones
}

// start lists the objects, and follows them.
func (in *informer) start(n *Node) {
	o := &n.w.objects
	core := stream.New(o.kind)
	*in = informer{n: n, server: n.Link.server, core: core, Store: streamtest.NewStore(o.kind, core, len(o.history))}
	in.relist()
}

// job does what sends to the store: at once, or once the list of the whole has ended.
func (in *informer) job(do func()) {
	if in.whole {
		in.jobs = append(in.jobs, do)
		return
	}
	do()
}

// soon does something in the process after a moment.
func (in *informer) soon(do func()) {
	in.n.w.after(in.n.w.delay(time.Millisecond, 20*time.Millisecond), func() { in.n.local(do) })
}

// relist replaces the store by a consistent list of the slots that are wanted.
func (in *informer) relist() {
	in.breaks++
	in.cutOff, in.whole = true, true
	list := in.core.Begin(in.wanted)
	in.list(in.n.Link.slow, func() bool { return false }, func(version uint64) { in.replace(list, version) })
}

// replace puts a list of the whole in the place of the store.
func (in *informer) replace(list *stream.List, version uint64) {
	w, o := in.n.w, &in.n.w.objects
	is := streamtest.Nothing(len(o.history))
	for _, item := range in.items(list.Set, version) {
		list.Shows(in.core, item.Object())
		is[item.Name] = *item
	}
	if w.rng.IntN(2) == 0 { // as with WatchList: events come until the bookmark that ends it
		for ; version < w.version; version++ {
			e, ok := o.log[version].Event(&o.kind, list.Set)
			if !ok {
				continue
			}
			for _, out := range list.Event(in.core, nil, &e) {
				s := *out.Object.Body.(*streamtest.State)
				s.Exists = out.Action == stream.Put
				is[s.Name] = s
			}
		}
	}
	for _, item := range in.verify(list, in.Unlisted(list, list.Set, "", nil)) {
		is[item.Name] = *item
	}
	in.comesBack(in.Replace(is))
	doubted := in.core.Commit(list, text(version))
	w.Counts.Replaced++
	w.logf("%s lists slots %v at version %d", in.n.ID, list.Set, version)
	in.whole = false
	in.open()
	in.heed(stream.Verdict{Doubted: doubted})
	for _, s := range in.wanted.Slots() {
		for i := range keysPerSlot {
			in.notify(key{s, i})
		}
	}
	jobs := in.jobs
	in.jobs = nil
	for _, do := range jobs {
		do()
	}
	in.changed()
	in.kick()
}

// items are the objects that a list of slots shows at a version and that lie there.
func (in *informer) items(set slot.Set, version uint64) (items []*streamtest.State) {
	o := &in.n.w.objects
	for name := range o.history {
		if s := o.asOf(name, version); s.Selected(&o.kind, set) && s.In && set.Has(s.Slot) {
			items = append(items, &s)
		}
	}
	return items
}

// verify looks up names that a list did not show, and returns the objects that exist.
func (in *informer) verify(list *stream.List, names []int) (items []*streamtest.State) {
	for _, name := range names {
		if is := in.n.w.objects.state(name); in.Verify(list, &is) {
			items = append(items, &is)
		}
	}
	return items
}

// open opens the watch at the position.
func (in *informer) open() {
	in.cutOff = false
	in.asked = in.core.Needed().Union(in.wanted)
	in.next = number(in.core.Position())
	for v := in.next + 1; v <= in.n.w.version; v++ {
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

// take handles a change that has come, if the watch tells of it.
func (in *informer) take(version uint64) {
	in.next = version
	o := &in.n.w.objects
	e, ok := o.log[version-1].Event(&o.kind, in.asked)
	if !ok {
		return
	}
	outs, v := in.core.Event(nil, &e)
	in.comesBack(in.send(outs))
	in.heed(v)
	if in.core.Advance(e.Object.Version) {
		in.changed()
	}
}

// bookmark tells how far the watch is.
func (in *informer) bookmark() {
	if !in.cutOff && in.core.Advance(text(in.next)) {
		in.changed()
	}
}

// heed has what is in doubt looked up.
func (in *informer) heed(v stream.Verdict) {
	if v.Doubted {
		in.confirm()
	}
}

// notify is the event handler.
func (in *informer) notify(k key) {
	if in.n.share.heard.Has(k.slot) {
		in.n.Work.add(k)
	}
}

// cut breaks the watch.
func (in *informer) cut() { in.reopen(in.n.w.between(30*time.Millisecond, 2*time.Second)) }

// reopen opens the watch anew after a moment. It goes on from the position, or lists the whole where that is compacted.
func (in *informer) reopen(d time.Duration) {
	if in.whole {
		return
	}
	w := in.n.w
	in.breaks++
	in.cutOff = true
	mine := in.breaks
	w.after(d, func() {
		in.n.local(func() {
			if in.breaks != mine {
				return
			}
			if w.servers[in.server].down > w.now || w.chance(0.5) {
				in.server = w.other(in.server)
			}
			switch {
			case w.servers[in.server].down > w.now:
				in.cut()
			case number(in.core.Position()) < w.objects.compacted:
				w.Counts.Compacted++
				w.logf("the informer of %s must list again: 410", in.n.ID)
				in.relist()
			default:
				in.open()
			}
		})
	})
}

// slowest is how long a page of a list takes at most: a client gives up after that.
const slowest = 30 * time.Second

// list makes a consistent list in pages, and calls then with its version, or 0 where it is overtaken. Where the
// position of the first page is compacted meanwhile, it begins anew.
func (in *informer) list(d time.Duration, overtaken func() bool, then func(version uint64)) {
	version := in.n.w.version
	if in.n.w.spoiled.oldLists {
		version = in.shown()
	}
	in.page(version, 1+in.n.w.rng.IntN(3), d, overtaken, then)
}

func (in *informer) page(version uint64, left int, d time.Duration, overtaken func() bool, then func(version uint64)) {
	w := in.n.w
	took := w.delay(d, 4*d)
	if w.rng.IntN(4) == 0 {
		took += w.between(0, 2*time.Second)
	}
	w.after(min(took, slowest), func() {
		in.n.local(func() {
			switch {
			case overtaken():
				then(0)
			case in.silent():
				in.page(w.version, left, max(d, time.Second), overtaken, then) // no answer: all of it again
			case version < w.objects.compacted:
				w.Counts.Compacted++
				w.logf("a list of %s begins anew: 410", in.n.ID)
				in.page(w.version, left, d, overtaken, then)
			case left > 1:
				in.page(version, left-1, d, overtaken, then)
			default:
				then(version)
			}
		})
	})
}

// shown is the version that the server shows to who takes any.
func (in *informer) shown() uint64 {
	w := in.n.w
	shown := w.version
	for shown > 1 && w.servers[in.server].shows(w.objects.log[shown-1].at) > w.now {
		shown--
	}
	return shown
}

// silent says that no API server answers the node.
func (in *informer) silent() bool {
	w, l := in.n.w, &in.n.Link
	return w.Net.Down || l.mute > w.now || l.deaf > w.now || w.servers[0].down > w.now && w.servers[1].down > w.now
}
