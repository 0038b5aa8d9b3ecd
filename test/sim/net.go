package sim

import (
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
)

// Net is what goes wrong between members and API server.
type Net struct {
	// Refuse, LoseRequest, LoseResponse and Late are probabilities, per request, of: no effect and a clear answer;
	// no effect and no answer; an effect and no answer; no answer and an effect after the client gave up.
	Refuse, LoseRequest, LoseResponse, Late float64
	// Stall is the probability that a process stops between two actions, or in the middle of a write; Fall that it ends
	// there.
	Stall, Fall float64
	// Down: the API server answers nobody, and watches are silent.
	Down bool
}

// spell is a time in which requests of one name go wrong: they are late, or else lost.
type spell struct {
	until time.Duration
	late  bool
}

// link is a node's connection to the API servers.
type link struct {
	w              *World
	n              *Node
	tables, leases *Feed
	// held are requests that wait for Release, astray those that wait for Admit, both by name. lose counts the requests
	// that are to be lost.
	held, astray map[string][]func()
	lose         map[string]int
	bad          map[string]spell
	slow         time.Duration // how long a page of a list takes
	server       int           // the API server that it uses, in lives
	deaf, mute   time.Duration // until then no answers reach it, or no requests of it arrive
}

// transit is the longest way from a client to the server.
const transit = 300 * time.Millisecond

// request is a request on its way.
type request struct {
	n    *Node
	name string
	// timeout is the server-side one, by the client's clock. 0: a read.
	timeout time.Duration
	// effect is what happens in the server; it returns what gives the answer. late says that nobody waits for it.
	effect func(late bool) (answer func())
	// fail gives the answer when there is none of the server's.
	fail func(member.Outcome)
}

// send sends the request, unless it is held.
func (l *link) send(r request) {
	r.n = l.n
	l.w.Messages.Requests[r.name]++
	if l.lost(r) {
		return
	}
	if waiting, ok := l.held[r.name]; ok {
		l.held[r.name] = append(waiting, func() { l.deliver(r) })
		return
	}
	if r.timeout > 0 && l.w.chance(l.w.Net.Stall) {
		// The process stops in the middle of the write, and sends the rest of it when it goes on.
		l.w.Counts.Split++
		l.n.Pause(l.w.between(0, 30*time.Second))
		l.n.local(func() { l.deliver(r) })
		return
	}
	l.deliver(r)
}

func (l *link) deliver(r request) {
	w := l.w
	answered := false
	answer := func(do func()) {
		if !answered {
			answered = true
			l.n.answered(do)
		}
	}
	limit := r.timeout
	if limit == 0 {
		limit = 5 * time.Second
	}
	patience := l.n.clock.takes(limit) + 20*time.Millisecond
	unknown := func(after time.Duration) {
		w.after(after, func() {
			if !answered {
				w.Counts.Unknown++
				answer(func() { r.fail(member.OutcomeUnknown) })
			}
		})
	}
	there := w.delay(time.Millisecond, 30*time.Millisecond)
	there = min(there, transit)
	net := w.Net
	if s := l.bad[r.name]; w.now < s.until {
		if s.late && r.timeout > 0 {
			net.Late = 1
		} else {
			net.LoseRequest = 1
		}
	}
	limitLate := there + limit
	net = l.obstacles(net)
	if w.wild && r.timeout > 0 && w.chance(0.3) {
		limitLate += time.Minute // etcd hung: the API server gave up, and the write was made nevertheless
	}
	switch {
	case net.Down || w.chance(net.LoseRequest):
		unknown(w.between(there, patience))
	case w.chance(net.Refuse):
		w.after(there, func() { answer(func() { r.fail(member.OutcomeFailed) }) })
	case r.timeout > 0 && w.chance(net.Late):
		gaveUp := w.between(there, patience)
		unknown(gaveUp)
		w.at(w.now+w.between(gaveUp, max(gaveUp, limitLate)), func() {
			w.Counts.LateWrites++
			w.logf("%s's %s is admitted late", l.n.ID, r.name)
			r.effect(true)
			w.Sync()
		})
	default:
		unknown(patience)
		w.after(there, func() {
			if answered {
				return
			}
			do := r.effect(false)
			w.Sync()
			if w.chance(net.LoseResponse) {
				return
			}
			w.after(w.delay(time.Millisecond, 30*time.Millisecond), func() { answer(do) })
		})
	}
}

// obstacles are the world's and those of the way from this node to its server.
func (l *link) obstacles(net Net) Net {
	w := l.w
	if l.mute > w.now {
		net.LoseRequest = 1
	}
	if l.deaf > w.now {
		net.LoseResponse = 1
	}
	if w.servers[l.server].down > w.now {
		if w.chance(0.5) {
			net.LoseRequest = 1
		} else {
			net.LoseRequest, net.Refuse = 0, 1
		}
		l.server = w.other(l.server)
	}
	return net
}

// Hold keeps back the node's requests of a name until Release.
func (l *link) Hold(name string) {
	if _, ok := l.held[name]; !ok {
		l.held[name] = nil
	}
}

// Release lets the node's requests of a name go.
func (l *link) Release(name string) {
	waiting := l.held[name]
	delete(l.held, name)
	for _, do := range waiting {
		do()
	}
}

// answers does something after a moment, once the node's requests of that name are not held back.
func (l *link) answers(name string, do func()) {
	l.whenReleased(name, func() {
		wait := quick
		if l.w.wild {
			wait = l.w.between(time.Millisecond, 100*time.Millisecond)
		}
		l.w.after(wait, func() { l.n.local(func() { l.n.answered(do) }) })
	})
}

// whenReleased does something once the node's requests of a name are not held back.
func (l *link) whenReleased(name string, do func()) {
	if waiting, ok := l.held[name]; ok {
		l.held[name] = append(waiting, func() { l.n.answered(do) })
		return
	}
	do()
}
