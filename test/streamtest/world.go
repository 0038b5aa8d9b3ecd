package streamtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// world is a stream, the server that it follows and the store that it fills. Its methods are what can happen in it. They
// draw from rng, so a seed gives the same life again.
type world struct {
	cfg    stream.Config
	rng    *rand.Rand
	server *server
	core   *stream.Stream
	// tell, if not nil, is told what happens.
	tell func(format string, args ...any)

	// store is what was sent, by name; put is the highest version of a name that was, left that of
	// one that went on from a slot that the stream carries, gone are those told to be gone.
	store     []state
	put, left []int
	gone      map[int]bool // by UID
	// wrong: the name's label is not right, or was not when it was deleted.
	wrong []bool

	// next is the index in the log of what the watch has yet to tell, asked are its slots.
	next  int
	asked slot.Set
	held  slot.Set
	now   time.Duration

	task  *task
	whole *whole
	looks []look
}

// whole is a list of the whole that is under way. Nothing is sent meanwhile.
type whole struct {
	list    *stream.List
	items   []state
	version int
}

// look is a look-up that was answered.
type look struct {
	doubt   *stream.Doubt
	found   *stream.Object
	version string
}

func newWorld(cfg stream.Config, rng *rand.Rand) *world {
	w := &world{
		cfg: cfg, rng: rng, server: newServer(names, cfg.Selects), core: stream.New(cfg), gone: map[int]bool{},
		store: make([]state, names), put: make([]int, names), left: make([]int, names), wrong: make([]bool, names),
	}
	for n := range w.store {
		w.store[n].name = n
	}
	return w
}

func (w *world) say(format string, args ...any) {
	if w.tell != nil {
		w.tell(format, args...)
	}
}

// change has the server put an object into a state, with a new UID if its name was free.
func (w *world) change(to state) {
	s := w.server
	if to.exists && !s.has[to.name].exists {
		s.uids++
		to.uid, to.in = s.uids, true
	}
	s.set(to)
	is := s.has[to.name]
	switch {
	case !w.cfg.Selects || is.exists && is.label == is.slot && is.in:
		w.wrong[is.name] = false
	case is.exists:
		w.wrong[is.name] = true
	}
	w.say("server: %v", is)
}

// hold sets the slots that the member holds.
func (w *world) hold(set slot.Set) {
	w.held = set
	w.say("held %v", &w.held)
}

// renew asks for a fresh list of some slots.
func (w *world) renew(set slot.Set) {
	w.core.Renew(set)
	w.say("renew %v", &set)
}

// begin asks for a list of the whole.
func (w *world) begin() {
	w.whole = &whole{list: w.core.Begin(w.held), version: w.server.version}
	for _, o := range w.server.has {
		if w.server.selected(o, w.whole.list.Set) {
			w.whole.items = append(w.whole.items, o)
		}
	}
	w.say("whole list of %v at %d", &w.whole.list.Set, w.whole.version)
}

// commit has the list of the whole replace the store, at times after some more changes: as with WatchList, where these
// come before the bookmark that ends it.
func (w *world) commit() error {
	l := w.whole
	changes := 0
	if w.rng.IntN(2) == 0 {
		changes = min(w.rng.IntN(4), len(w.server.log)-w.indexOf(l.version))
	}
	store := make([]state, len(w.store))
	for i := range store {
		store[i].name = i
	}
	for _, o := range l.items {
		if obj := object(o); o.in && l.list.Set.Has(o.slot) {
			l.list.Shows(w.core, obj)
			store[o.name] = o
		}
	}
	version := l.version
	w.next = w.indexOf(version)
	for range changes {
		c := w.server.log[w.next]
		w.next++
		version = c.version()
		e, ok := w.server.event(c, l.list.Set)
		if !ok {
			continue
		}
		for _, out := range l.list.Event(w.core, nil, &e) {
			o := out.Object.Body.(state)
			store[o.name] = o
			if out.Action != stream.Put {
				store[o.name] = state{name: o.name}
			}
		}
	}
	for _, is := range w.unlisted(l.list, l.list.Set) {
		l.list.Adds(w.core, object(is))
		store[is.name] = is
	}
	w.say("whole list committed at %d", version)
	for n, o := range store {
		if o.exists && o.version < w.put[n] && o.uid == w.store[n].uid {
			return fmt.Errorf("the list of the whole brings back %v", o)
		}
		w.put[n] = max(w.put[n], o.version)
	}
	w.store = store
	w.core.Commit(l.list, strconv.Itoa(version))
	w.asked, w.whole, w.looks = l.list.Set.Union(w.held), nil, nil
	return nil
}

// unlisted looks up what the store has in some slots and a list of them did not show. It returns what exists there
// nevertheless: its label is wrong.
func (w *world) unlisted(list *stream.List, set slot.Set) []state {
	if !w.cfg.Selects {
		return nil
	}
	var out []state
	for n, was := range w.store {
		if !was.exists || !set.Has(was.slot) || list.Listed(object(was).Name) {
			continue
		}
		if is, exists := w.lookUpIn(set, n); exists {
			out = append(out, is)
		}
	}
	return out
}

// lookUpIn looks up what the store has by a name. It says whether that very object exists in some slots.
func (w *world) lookUpIn(set slot.Set, n int) (is state, exists bool) {
	is = w.server.has[n]
	return is, is.exists && is.uid == w.store[n].uid && is.in && set.Has(is.slot)
}

// indexOf returns where in the log the first change after a version is.
func (w *world) indexOf(version int) int {
	i, _ := slices.BinarySearchFunc(w.server.log, version+1, func(c change, v int) int { return c.version() - v })
	return i
}

// position returns where in the log the first change is that the stream does not know to be handled.
func (w *world) position() int {
	version, _ := strconv.Atoi(w.core.Position())
	return w.indexOf(version)
}

// reopen has the watch go on from the position, with other slots.
func (w *world) reopen() {
	w.next, w.asked = w.position(), w.core.Needed().Union(w.held)
	w.say("watch of %v from %s", &w.asked, w.core.Position())
}

// deliver has the watch tell of the next change that it selects.
func (w *world) deliver() error {
	for w.next < len(w.server.log) {
		c := w.server.log[w.next]
		w.next++
		e, ok := w.server.event(c, w.asked)
		if !ok {
			continue
		}
		w.say("event %v %v", e.Type, e.Object)
		outs, _ := w.core.Event(nil, &e)
		if err := w.send(outs); err != nil {
			return err
		}
		w.core.Advance(e.Object.Version)
		return nil
	}
	return nil
}

// bookmark tells how far the watch is.
func (w *world) bookmark() {
	if w.next == 0 {
		return
	}
	version := w.server.log[w.next-1].version()
	w.say("bookmark %d", version)
	w.core.Advance(strconv.Itoa(version))
}

// send has the store get what was decided.
func (w *world) send(outs []stream.Out) error {
	for _, out := range outs {
		o := out.Object.Body.(state)
		w.say("  %v", out)
		n := o.name
		switch out.Action {
		case stream.Put:
			if o.version < w.put[n] || o.version == w.put[n] && w.store[n].exists && !w.cfg.Selects {
				return fmt.Errorf("%v is put, after a state at %d", o, w.put[n])
			}
			if o.version <= w.left[n] {
				return fmt.Errorf("%v is put, after it had gone on from there", o)
			}
			if w.gone[o.uid] {
				return fmt.Errorf("%v is put, after it was gone", o)
			}
			w.put[n], w.store[n] = o.version, o
		case stream.Remove:
			w.gone[o.uid] = true
			w.store[n] = state{name: n}
		case stream.Leave:
			if o.in && w.core.Carries(o.slot) {
				w.left[n] = max(w.left[n], o.version)
			}
			w.store[n] = state{name: n}
		case stream.ActionUnknown:
			return fmt.Errorf("%v", out)
		}
	}
	return nil
}

// lose has the store lose what lies in a slot that was lost, or that a list did not show.
func (w *world) lose(in map[int]slot.Slot, version string) {
	for n := range w.store {
		s, ok := in[n]
		if !ok || !w.core.Missing(object(state{name: n}).Name, s, version) {
			continue
		}
		w.say("  lost: %d", n)
		w.store[n] = state{name: n}
	}
}

// stored returns in which slots the store has names, of some. See stream.Stream.Stored.
func (w *world) stored(set slot.Set, upTo string) map[int]slot.Slot {
	out := map[int]slot.Slot{}
	if w.cfg.Moves {
		for name, place := range w.core.Stored(set, upTo) {
			n, _ := strconv.Atoi(name.Name)
			out[n] = place.Slot
		}
		return out
	}
	for n, o := range w.store {
		if o.exists && set.Has(o.slot) {
			out[n] = o.slot
		}
	}
	return out
}

// ask looks up what is due.
func (w *world) ask() {
	due, _ := w.core.Due(w.now)
	for _, d := range due {
		if _, _, current := w.core.Asks(d); !current {
			continue
		}
		n, _ := strconv.Atoi(d.Name.Name)
		k := look{doubt: d, version: strconv.Itoa(w.server.version)}
		if is := w.server.has[n]; is.exists {
			o := object(is)
			k.found = &o
		}
		w.looks = append(w.looks, k)
	}
}

// answer has an answer come.
func (w *world) answer(i int) error {
	k := w.looks[i]
	w.looks = slices.Delete(w.looks, i, i+1)
	w.say("look-up at %s: %v", k.version, k.found)
	outs, ended := w.core.LookedUp(nil, k.doubt, k.found, k.version, w.now)
	if err := w.send(outs); err != nil {
		return err
	}
	if ended {
		w.core.Ended(k.doubt)
	}
	return nil
}

// lookUp looks up what is due, or has an earlier answer come.
func (w *world) lookUp() error {
	if len(w.looks) > 0 && w.rng.IntN(2) == 0 {
		return w.answer(w.rng.IntN(len(w.looks)))
	}
	w.ask()
	return nil
}
