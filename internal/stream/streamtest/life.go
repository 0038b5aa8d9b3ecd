package streamtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/stream"
	"github.com/rota-dev/rota/slot"
)

const (
	names = 3
	slots = 4
)

// Life is a stream, the server that it follows and the store that it fills.
type Life struct {
	cfg    stream.Config
	rng    *rand.Rand
	server *server
	core   *stream.Stream
	trail  []string

	// store is what was sent, by name; put is the highest version of a name that was, left that of
	// one that went on from a slot that the stream carries, gone are those told to be gone.
	store     [names]state
	put, left [names]int
	gone      map[int]bool // by UID
	// dropped: the store lost it for other reasons than its end.
	dropped [names]bool
	// wrong is the version since which a name's label has not been right without a break; 0: it is right.
	wrong [names]int

	// next is the index in the log of what the watch has yet to tell, asked are its slots.
	next  int
	asked slot.Set
	held  slot.Set
	now   time.Duration

	task  *task
	whole *whole
	looks []look
}

// task is a step of the driver that is under way.
type task struct {
	stream.Task
	stage    int
	settling stream.Settling
	items    []state
	version  int
	list     *stream.List
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

// Run lives through a seed, and returns what went wrong.
func Run(seed uint64, cfg stream.Config, steps int) error {
	cfg.Slots = slots
	l := &Life{cfg: cfg, rng: rand.New(rand.NewPCG(seed, 0)), gone: map[int]bool{}, server: newServer(names, cfg.Selects), core: stream.New(cfg)}
	err := l.run(steps)
	if err != nil {
		tail := l.trail[max(0, len(l.trail)-80):]
		return fmt.Errorf("seed %d, %+v: %w\n  %s", seed, cfg, err, strings.Join(tail, "\n  "))
	}
	return nil
}

func (l *Life) say(format string, args ...any) {
	l.trail = append(l.trail, fmt.Sprintf(format, args...))
}

func (l *Life) run(steps int) error {
	for range 3 {
		l.change()
	}
	l.held = l.some()
	l.begin()
	if err := l.commit(); err != nil {
		return err
	}
	for range steps {
		l.now += time.Duration(l.rng.IntN(300)) * time.Millisecond
		if err := l.step(); err != nil {
			return err
		}
		if err := l.check(); err != nil {
			return err
		}
	}
	return l.settle()
}

func (l *Life) some() slot.Set {
	var set slot.Set
	for n := range slots {
		if l.rng.IntN(2) == 0 {
			set.Add(slot.Slot(n))
		}
	}
	return set
}

func (l *Life) step() error {
	switch n := l.rng.IntN(100); {
	case n < 22:
		l.change()
		return nil
	case n < 26:
		l.held = l.some()
		l.say("held %v", l.held)
		return nil
	case n < 28 && l.whole == nil:
		set := l.some()
		l.core.Renew(set)
		l.say("renew %v", set)
		return nil
	case n < 30 && l.whole == nil:
		l.begin()
		return nil
	case n < 36 && l.whole != nil:
		return l.commit()
	case l.whole != nil:
		return nil
	case n < 60:
		return l.deliver()
	case n < 63:
		l.bookmark()
		return nil
	case n < 85:
		return l.drive()
	default:
		return l.lookUp()
	}
}

// change has something happen to a name.
func (l *Life) change() {
	s := l.server
	is := s.has[l.rng.IntN(names)]
	fixed := slot.Slot(is.name % slots)
	switch {
	case !is.exists:
		s.uids++
		is.exists, is.uid, is.in, is.slot = true, s.uids, true, fixed
		if l.cfg.Moves || l.cfg.Namesakes {
			is.slot = slot.Slot(l.rng.IntN(slots))
		}
		is.label = is.slot
		if l.cfg.Selects && l.rng.IntN(6) == 0 {
			is.label = slot.Slot(l.rng.IntN(slots + 1))
		}
	default:
		switch n := l.rng.IntN(10); {
		case n < 3:
			is.exists = false
		case n < 6 && l.cfg.Moves:
			is.slot, is.in = slot.Slot(l.rng.IntN(slots)), l.rng.IntN(6) > 0
			if l.rng.IntN(3) > 0 {
				is.label = is.slot
			}
		case n < 7 && l.cfg.Selects:
			is.label = slot.Slot(l.rng.IntN(slots + 1))
		case n < 9:
			is.label = is.slot
		}
	}
	s.set(is)
	is = s.has[is.name]
	switch {
	case !l.cfg.Selects || is.exists && is.label == is.slot && is.in:
		l.wrong[is.name] = 0
	case is.exists && l.wrong[is.name] == 0:
		l.wrong[is.name] = is.version
	}
	l.say("server: %v", is)
}

// begin asks for a list of the whole.
func (l *Life) begin() {
	l.whole = &whole{list: l.core.Begin(l.held), version: l.server.version}
	for _, o := range l.server.has {
		if l.server.selected(o, l.whole.list.Set) {
			l.whole.items = append(l.whole.items, o)
		}
	}
	l.say("whole list of %v at %d", l.whole.list.Set, l.whole.version)
}

// commit has the list of the whole replace the store.
func (l *Life) commit() error {
	w := l.whole
	var store [names]state
	for i := range store {
		store[i].name = i
	}
	for _, o := range w.items {
		if obj := object(o); o.in && w.list.Set.Has(o.slot) {
			w.list.Shows(l.core, obj)
			store[o.name] = o
		}
	}
	version := w.version
	l.next = l.indexOf(version)
	if l.rng.IntN(2) == 0 { // as with WatchList: what comes before the bookmark that ends it
		for range l.rng.IntN(4) {
			if l.next == len(l.server.log) {
				break
			}
			c := l.server.log[l.next]
			l.next++
			version = c.version()
			e, ok := l.server.event(c, w.list.Set)
			if !ok {
				continue
			}
			for _, out := range w.list.Event(l.core, nil, e) {
				o := out.Object.Body.(state)
				store[o.name] = o
				if out.Action != stream.Put {
					store[o.name] = state{name: o.name}
				}
			}
		}
	}
	if l.cfg.Selects {
		for _, was := range l.store {
			is := l.server.has[was.name]
			if was.exists && w.list.Set.Has(was.slot) && !w.list.Listed(object(was).Name) && is.exists && is.uid == was.uid && is.in && w.list.Set.Has(is.slot) {
				w.list.Adds(l.core, object(is))
				store[is.name] = is
			}
		}
	}
	l.say("whole list committed at %d", version)
	for n, o := range store {
		if o.exists && o.version < l.put[n] && o.uid == l.store[n].uid {
			return fmt.Errorf("the list of the whole brings back %v", o)
		}
		l.put[n] = max(l.put[n], o.version)
		l.dropped[n] = !o.exists
	}
	l.store = store
	l.core.Commit(w.list, strconv.Itoa(version))
	l.asked, l.whole, l.looks = w.list.Set.Union(l.held), nil, nil
	return nil
}

// indexOf returns where in the log the first change after a version is.
func (l *Life) indexOf(version int) int {
	i, _ := slices.BinarySearchFunc(l.server.log, version+1, func(c change, v int) int { return c.version() - v })
	return i
}

// reopen has the watch go on from the position, with other slots.
func (l *Life) reopen() {
	position, _ := strconv.Atoi(l.core.Position())
	l.next, l.asked = l.indexOf(position), l.core.Needed().Union(l.held)
	l.say("watch of %v from %d", l.asked, position)
}

// deliver has the watch tell of the next change that it selects.
func (l *Life) deliver() error {
	for l.next < len(l.server.log) {
		c := l.server.log[l.next]
		l.next++
		e, ok := l.server.event(c, l.asked)
		if !ok {
			continue
		}
		l.say("event %v %v", e.Type, e.Object)
		outs, _ := l.core.Event(nil, e)
		if err := l.send(outs); err != nil {
			return err
		}
		l.core.Advance(e.Object.Version)
		return nil
	}
	return nil
}

// bookmark tells how far the watch is.
func (l *Life) bookmark() {
	if l.next == 0 {
		return
	}
	version := l.server.log[l.next-1].version()
	l.say("bookmark %d", version)
	l.core.Advance(strconv.Itoa(version))
}

// send has the store get what was decided.
func (l *Life) send(outs []stream.Out) error {
	for _, out := range outs {
		o := out.Object.Body.(state)
		l.say("  %v", out)
		n := o.name
		switch out.Action {
		case stream.Put:
			if o.version < l.put[n] || o.version == l.put[n] && l.store[n].exists && !l.cfg.Selects {
				return fmt.Errorf("%v is put, after a state at %d", o, l.put[n])
			}
			if o.version <= l.left[n] {
				return fmt.Errorf("%v is put, after it had gone on from there", o)
			}
			if l.gone[o.uid] {
				return fmt.Errorf("%v is put, after it was gone", o)
			}
			l.put[n], l.store[n], l.dropped[n] = o.version, o, false
		case stream.Remove:
			l.gone[o.uid] = true
			l.store[n] = state{name: n}
		case stream.Leave:
			if o.in && l.core.Carries(o.slot) {
				l.left[n] = max(l.left[n], o.version)
			}
			l.store[n] = state{name: n}
			l.dropped[n] = true
		case stream.ActionUnknown:
			return fmt.Errorf("%v", out)
		}
	}
	return nil
}

// lose has the store lose what lies in a slot that was lost, or that a list did not show.
func (l *Life) lose(in map[int]slot.Slot, version string) {
	for n := range names {
		s, ok := in[n]
		if !ok || !l.core.Bury(object(state{name: n}).Name, s, version) {
			continue
		}
		l.say("  lost: %d", n)
		l.store[n], l.dropped[n] = state{name: n}, true
	}
}

// stored returns in which slots the store has names, of some.
func (l *Life) stored(set slot.Set) map[int]slot.Slot {
	out := map[int]slot.Slot{}
	for n, o := range l.store {
		if o.exists && set.Has(o.slot) {
			out[n] = o.slot
		}
	}
	return out
}

// drive does a part of what is to be done next to bring the store in step with the slots held.
func (l *Life) drive() error {
	t := l.task
	if t != nil && !l.core.Valid(t.Task) {
		l.finish()
		return nil
	}
	if t == nil {
		next := l.core.Next(l.held)
		if next.Kind == stream.Nothing {
			return nil
		}
		l.say("task %d: %v", next.Kind, next.Set)
		l.task = &task{Task: next}
		if next.Kind != stream.Settle {
			l.core.Observe()
		}
		if next.Kind == stream.Settle {
			l.task.settling = l.core.Settle(next)
		}
		return nil
	}
	switch t.Kind {
	case stream.Drop:
		l.lose(l.stored(t.Set), "")
		l.finish()
	case stream.Settle:
		l.core.Settled(t.settling)
		l.finish()
	case stream.Grow:
		return l.grow(t)
	case stream.Nothing:
	}
	return nil
}

func (l *Life) finish() {
	if l.task.Kind != stream.Settle {
		l.core.Unobserve()
	}
	l.task = nil
}

func (l *Life) grow(t *task) error {
	t.stage++
	switch t.stage {
	case 1:
		l.core.Warm(t.Set)
		if rest := t.Set.Minus(l.asked); !rest.Empty() {
			l.reopen()
		}
	case 2:
		t.list, t.version = l.core.NewList(t.Set), l.server.version
		for _, o := range l.server.has {
			if l.server.selected(o, t.Set) && o.in && t.Set.Has(o.slot) {
				t.items = append(t.items, o)
				t.list.Shows(l.core, object(o))
			}
		}
		if l.cfg.Selects {
			for _, was := range l.store {
				is := l.server.has[was.name]
				if was.exists && t.Carried.Has(was.slot) && !t.list.Listed(object(was).Name) && is.exists && is.uid == was.uid && is.in && t.Set.Has(is.slot) {
					t.list.Adds(l.core, object(is))
					t.items = append(t.items, is)
				}
			}
		}
		l.say("list of %v at %d: %v", t.Set, t.version, t.items)
	default:
		l.say("the list of %v is used", t.Set)
		old := l.stored(t.Carried)
		for _, o := range t.items {
			_, had := old[o.name]
			delete(old, o.name)
			if !l.core.Item(object(o)) || had && !l.cfg.Moves && l.store[o.name].version == o.version {
				continue
			}
			if err := l.send([]stream.Out{{Action: stream.Put, Type: stream.Added, Object: object(o)}}); err != nil {
				return err
			}
		}
		l.core.Listing(strconv.Itoa(t.version))
		l.lose(old, strconv.Itoa(t.version))
		outs, _ := l.core.Release(nil, t.Task, strconv.Itoa(t.version), t.list.Strays())
		l.finish()
		return l.send(outs)
	}
	return nil
}

// lookUp asks for what is in doubt, or has an answer come.
func (l *Life) lookUp() error {
	if len(l.looks) > 0 && l.rng.IntN(2) == 0 {
		i := l.rng.IntN(len(l.looks))
		k := l.looks[i]
		l.looks = slices.Delete(l.looks, i, i+1)
		l.say("look-up at %s: %v", k.version, k.found)
		outs, ended := l.core.LookedUp(nil, k.doubt, k.found, k.version, l.now)
		if err := l.send(outs); err != nil {
			return err
		}
		if ended {
			l.core.Ended(k.doubt)
		}
		return nil
	}
	due, _ := l.core.Due(l.now)
	for _, d := range due {
		if _, _, current := l.core.Asks(d); !current {
			continue
		}
		n, _ := strconv.Atoi(d.Name.Name)
		k := look{doubt: d, version: strconv.Itoa(l.server.version)}
		if is := l.server.has[n]; is.exists {
			o := object(is)
			k.found = &o
		}
		l.looks = append(l.looks, k)
	}
	return nil
}
