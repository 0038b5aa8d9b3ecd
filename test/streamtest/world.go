package streamtest

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// world is a stream, the server that it follows and the store that it fills. What happens in it are acts, and nothing
// else: two worlds with the same acts are the same.
type world struct {
	cfg    stream.Config
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

func newWorld(cfg stream.Config, names int) *world {
	w := &world{
		cfg: cfg, server: newServer(names, cfg.Selects), core: stream.New(cfg), gone: map[int]bool{},
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

// may says whether an act makes sense now.
func (w *world) may(a act) bool {
	switch k := a.kind; {
	case k == create:
		return !w.server.has[a.name].exists
	case k == update, k == remove:
		return w.server.has[a.name].exists
	case k == hold, k == wait, k == rest:
		return true
	case k == commit:
		return w.whole != nil && w.indexOf(w.whole.version)+int(a.n) <= len(w.server.log)
	case w.whole != nil:
		return false // nothing is sent meanwhile
	case k == answer:
		return int(a.n) < len(w.looks)
	}
	return true
}

// do takes an act, and says what the stream did wrong.
func (w *world) do(a act) error {
	if !w.may(a) {
		return fmt.Errorf("%v cannot be now", a)
	}
	switch a.kind {
	case create, update, remove:
		w.change(a)
	case hold:
		w.held = a.set.slots()
		w.say("held %v", &w.held)
	case renew:
		w.core.Renew(a.set.slots())
		w.say("renew %b", a.set)
	case drive:
		return w.drive()
	case begin:
		w.begin()
	case commit:
		return w.commit(int(a.n))
	case deliver:
		return w.deliver()
	case bookmark:
		w.bookmark()
	case reopen:
		w.reopen()
	case ask:
		w.ask(a.n > 0)
	case answer:
		return w.answer(int(a.n))
	case wait:
		w.now += time.Duration(a.n) * time.Millisecond
	case rest, kinds:
	}
	return nil
}

// change has something happen to a name.
func (w *world) change(a act) {
	s := w.server
	is := s.has[a.name]
	switch a.kind {
	case create:
		s.uids++
		is.exists, is.uid = true, s.uids
		is.slot, is.label, is.in = slot.Slot(a.slot), slot.Slot(a.label), true
	case update:
		is.slot, is.label, is.in = slot.Slot(a.slot), slot.Slot(a.label), a.in
	default:
		is.exists = false
	}
	s.set(is)
	is = s.has[a.name]
	switch {
	case !w.cfg.Selects || is.exists && is.label == is.slot && is.in:
		w.wrong[a.name] = false
	case is.exists:
		w.wrong[a.name] = true
	}
	w.say("server: %v", is)
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

// commit has the list of the whole replace the store, after some more changes: as with WatchList, where these come
// before the bookmark that ends it.
func (w *world) commit(changes int) error {
	l := w.whole
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

// ask looks up what is due. Where it waits, that is every doubt that is not being looked up.
func (w *world) ask(waits bool) {
	due, _ := w.core.Due(w.now)
	if waits {
		w.now += 2 * stream.LastCheck
		later, _ := w.core.Due(w.now)
		due = append(due, later...)
	}
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
