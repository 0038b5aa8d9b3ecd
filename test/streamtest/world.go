package streamtest

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// world is a stream, the server that it follows and the store that it fills. Its methods are what can happen in it.
// They draw from rng, so a seed gives the same life again.
type world struct {
	cfg stream.Config
	rng *rand.Rand
	*Store
	// logf, if not nil, logs what happens.
	logf func(format string, args ...any)

	// server is what the API server has, by name; log is all that happened, with the change of version empty+1+i at i.
	server  []State
	log     []Change
	version uint64
	uids    int
	// wrong: the name's label is not right, or was not when it was deleted.
	wrong []bool

	// next is the version up to which the watch has sent events. asked are its slots.
	next  uint64
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
	items   []*State
	version uint64
}

// look is a look-up that was answered.
type look struct {
	doubt   *stream.Doubt
	found   *stream.Object
	version string
}

// empty is the version of a server on which nothing has happened.
const empty = 10

func newWorld(cfg stream.Config, rng *rand.Rand) *world {
	return &world{
		cfg: cfg, rng: rng, Store: NewStore(cfg, stream.New(cfg), names), server: Nothing(names), version: empty,
		next: empty, wrong: make([]bool, names),
	}
}

func (w *world) say(format string, args ...any) {
	if w.logf != nil {
		w.logf(format, args...)
	}
}

// change has the server put an object into a state, with a new UID if its name was free.
func (w *world) change(to State) {
	was := w.server[to.Name]
	if to.Exists && !was.Exists {
		w.uids++
		to.UID, to.In = w.uids, true
	}
	w.version++
	c := NewChange(was, to, w.version)
	w.log = append(w.log, c)
	is := c.State()
	w.server[is.Name] = is
	switch {
	case !w.cfg.Selects || is.Exists && is.Label == is.Slot && is.In:
		w.wrong[is.Name] = false
	case is.Exists:
		w.wrong[is.Name] = true
	}
	w.say("server: %v", is)
}

// items are the objects that a list of slots shows now.
func (w *world) items(set slot.Set) (items []*State) {
	for _, is := range w.server {
		if is.Selected(&w.cfg, set) && is.In && set.Has(is.Slot) {
			items = append(items, &is)
		}
	}
	return items
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
	list := w.core.Begin(w.held)
	w.whole = &whole{list: list, items: w.items(list.Set), version: w.version}
	w.say("whole list of %v at %d", &list.Set, w.version)
}

// commit has the list of the whole replace the store, at times after some more changes: as with WatchList, where these
// come before the bookmark that ends it.
func (w *world) commit() error {
	l := w.whole
	changes := 0
	if w.rng.IntN(2) == 0 {
		changes = min(w.rng.IntN(4), int(w.version-l.version))
	}
	has := Nothing(names)
	for _, is := range l.items {
		l.list.Shows(w.core, is.Object())
		has[is.Name] = *is
	}
	w.next = l.version
	for range changes {
		e, ok := w.log[w.next-empty].Event(&w.cfg, l.list.Set)
		if w.next++; !ok {
			continue
		}
		for _, out := range l.list.Event(w.core, nil, &e) {
			is := *out.Object.Body.(*State)
			has[is.Name] = is
			if out.Action != stream.Put {
				has[is.Name] = State{Name: is.Name}
			}
		}
	}
	for _, n := range w.Unlisted(l.list, l.list.Set, "", nil) {
		if is := w.server[n]; w.Verify(l.list, &is) {
			has[n] = is
		}
	}
	w.say("whole list committed at %d", w.next)
	if err := w.Replace(has); err != nil {
		return err
	}
	w.core.Commit(l.list, text(w.next))
	w.asked, w.whole, w.looks = l.list.Set.Union(w.held), nil, nil
	return nil
}

// reopen has the watch go on from the position, with other slots.
func (w *world) reopen() {
	position, _ := strconv.ParseUint(w.core.Position(), 10, 64)
	w.next, w.asked = max(position, empty), w.core.Needed().Union(w.held)
	w.say("watch of %v from %d", &w.asked, w.next)
}

// deliver sends the watch's event of the next change that it selects.
func (w *world) deliver() error {
	for w.next < w.version {
		e, ok := w.log[w.next-empty].Event(&w.cfg, w.asked)
		if w.next++; !ok {
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

// bookmark sends the watch's position.
func (w *world) bookmark() {
	if w.next > empty {
		w.say("bookmark %d", w.next)
		w.core.Advance(text(w.next))
	}
}

// send has the store get what was decided.
func (w *world) send(outs []stream.Out) error {
	for _, out := range outs {
		w.say("  %v", out)
	}
	return w.Send(outs)
}

// ask looks up what is due.
func (w *world) ask() {
	due, _ := w.core.Due(w.now)
	for _, d := range due {
		if _, _, current := w.core.Asks(d); !current {
			continue
		}
		k := look{doubt: d, version: text(w.version)}
		if is := w.server[NameOf(d.Name)]; is.Exists {
			o := is.Object()
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
