package queue

import "time"

// relief is how many keys of the most urgent class are handed out for one of the others.
const relief = 7

// lane has the keys of one kind that are ready, for one worker or for all.
type lane struct {
	kind  *kind
	share *share // nil: these are for any worker
	rings [classes]ring
	ready int
	// urgent counts keys handed out of the most urgent class while others had keys.
	urgent int
}

// ring has the keys of one class. Namespaces take turns.
type ring struct {
	turn  *line // whose turn it is; nil: there is none
	lines map[string]*line
}

// line has the keys of one namespace, in the order in which they became ready.
type line struct {
	lane        *lane
	ring        *ring
	namespace   string
	first, last *entry
	next, prev  *line // in the ring
}

// add appends an entry to its line.
func (l *lane) add(e *entry) {
	r := &l.rings[e.class]
	at := r.lines[e.namespace]
	if at == nil {
		at = &line{lane: l, ring: r, namespace: e.namespace}
		r.insert(at)
	}
	e.line, e.prev = at, at.last
	if at.last != nil {
		at.last.next = e
	} else {
		at.first = e
	}
	at.last = e
	l.ready++
	l.kind.ready++
	l.changed()
}

// leave takes an entry off its line.
func (e *entry) leave() {
	at := e.line
	if at == nil {
		return
	}
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		at.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		at.last = e.prev
	}
	e.line, e.next, e.prev = nil, nil, nil
	at.lane.ready--
	at.lane.kind.ready--
	if at.first == nil {
		at.ring.remove(at)
	}
	at.lane.changed()
}

// changed puts the share of a lane where it belongs among the others, by its head.
func (l *lane) changed() {
	s := l.share
	if s == nil {
		return
	}
	head := l.head()
	switch {
	case head == nil:
		l.kind.heads.remove(s)
	case s.place < 0:
		s.since = head.since
		l.kind.heads.add(s)
	case s.since != head.since:
		s.since = head.since
		l.kind.heads.moved(s)
	}
}

// insert puts a line at the end of the round.
func (r *ring) insert(at *line) {
	if r.lines == nil {
		r.lines = map[string]*line{}
	}
	r.lines[at.namespace] = at
	if r.turn == nil {
		at.next, at.prev = at, at
		r.turn = at
		return
	}
	at.next, at.prev = r.turn, r.turn.prev
	at.prev.next, at.next.prev = at, at
}

func (r *ring) remove(at *line) {
	delete(r.lines, at.namespace)
	if at.next == at {
		r.turn, r.lines = nil, nil // a map keeps its memory
		return
	}
	at.prev.next, at.next.prev = at.next, at.prev
	if r.turn == at {
		r.turn = at.next
	}
}

// class is the one from which a key should be handed out next. The second one is also there, if there are keys of a
// less urgent class.
func (l *lane) class() (first, second int) {
	first, second = classes, classes
	for c := range l.rings {
		switch {
		case l.rings[c].turn == nil:
		case first == classes:
			first = c
		case second == classes:
			second = c
		}
	}
	return first, second
}

// head is the entry that should be handed out next; nil if there is none.
func (l *lane) head() *entry {
	first, second := l.class()
	if first == classes {
		return nil
	}
	if l.urgent >= relief && second != classes {
		first = second
	}
	return l.rings[first].turn.first
}

// take takes the head off.
func (l *lane) take() *entry {
	e := l.head()
	if e == nil {
		return nil
	}
	switch first, second := l.class(); {
	case second == classes || int(e.class) != first:
		l.urgent = 0
	default:
		l.urgent++
	}
	at := e.line
	at.ring.turn = at.next
	e.leave()
	return e
}

// oldest is since when the key of each class that has been ready longest is; never if there is none.
func (l *lane) oldest() (since [classes]time.Duration) {
	for class := range l.rings {
		since[class] = never
		for _, at := range l.rings[class].lines {
			since[class] = min(since[class], at.first.since)
		}
	}
	return since
}
