package queue

import "time"

// relief is how many keys of the most urgent class are handed out for one key of the others.
const relief = 7

// lane holds the ready keys of one kind, for one worker or for all.
type lane struct {
	kind  *kind
	share *share // nil if the keys are for any worker
	rings [classes]ring
	ready int
	// urgent counts keys of the most urgent class that were handed out while other classes had keys.
	urgent int
}

// ring holds the keys of one class. Namespaces take turns.
type ring struct {
	turn  *line // whose turn it is, or nil if the ring is empty
	lines map[string]*line
}

// line holds the keys of one namespace, in the order in which they became ready.
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

// leave removes an entry from its line.
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

// changed reorders the share of a lane among the others, by its head.
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

// insert adds a line at the end of the round.
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
		r.turn, r.lines = nil, nil // a map never shrinks
		return
	}
	at.prev.next, at.next.prev = at.next, at.prev
	if r.turn == at {
		r.turn = at.next
	}
}

// class returns the class of the next key. second is an alternative if a less urgent class has keys.
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

// head returns the entry that should be handed out next, or nil.
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

// take removes and returns the head.
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

// oldest returns since when the oldest key of each class has been ready, or never.
func (l *lane) oldest() (since [classes]time.Duration) {
	for class := range l.rings {
		since[class] = never
		for _, at := range l.rings[class].lines {
			since[class] = min(since[class], at.first.since)
		}
	}
	return since
}
