package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
)

// connections are those of a server. It bounds how many there are, so that whoever is not trusted cannot keep others
// out: a connection is unknown until a request on it has shown a valid token (Trust), and idle ones of these make room.
type connections struct {
	most        int           // in all
	mostUnknown int           // of those unknown from one address
	idle        time.Duration // how long one that is unknown stays without a request
	trusting    bool          // all are known from the beginning
	log         logr.Logger
	quiet       rate.Sometimes // of logs

	mu      sync.Mutex
	all     map[*conn]struct{}
	unknown map[string]int // by address
	closed  map[string]int // how many were closed, and why
	// freed is closed when there is one less.
	freed chan struct{}
	// full is since when a connection waits since none can be closed for it; zero: none waits.
	full time.Time
}

// Why connections are closed.
const (
	closedForRoom    = "room"    // for another one, since there are too many
	closedForAddress = "address" // since the address has too many that are unknown
	closedIdle       = "idle"    // since it had no request for a while, and is unknown
)

func newConnections(most int, trusting bool, idle time.Duration, log logr.Logger) *connections {
	return &connections{
		most: most, mostUnknown: max(most/10, 8), idle: idle, trusting: trusting, log: log,
		quiet: rate.Sometimes{First: 1, Interval: time.Minute},
		all:   map[*conn]struct{}{}, unknown: map[string]int{}, freed: make(chan struct{}),
		closed: map[string]int{closedForRoom: 0, closedForAddress: 0, closedIdle: 0},
	}
}

// conn is one connection. Its fields are guarded by those of all.
type conn struct {
	net.Conn
	in   *connections
	host string
	// known says that a request had a valid token.
	known bool
	// busy says that a request is under way. If none is, since is from when on, and timer closes it if it is unknown.
	busy  bool
	since time.Time
	timer *time.Timer
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.in.remove(c)
	return c.Conn.Close()
}

// listener accepts what connections has room for.
type listener struct {
	net.Listener
	in   *connections
	done chan struct{} // closed with the listener
	once sync.Once
}

// Accept implements net.Listener. A connection waits if there are too many, and none of them is idle.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: raw, in: l.in, host: hostOf(raw.RemoteAddr()), known: l.in.trusting, since: time.Now()}
		for {
			admitted, victim, freed := l.in.admit(c)
			if victim != nil {
				_ = victim.Close()
			}
			if admitted {
				return c, nil
			}
			if victim == c {
				break
			}
			if victim != nil {
				continue
			}
			select {
			case <-freed:
			case <-l.done:
				_ = raw.Close()
				return nil, net.ErrClosed
			}
		}
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// admit adds a connection, or returns one to close first: perhaps that one itself. If there is none, freed is closed
// when there is room.
func (s *connections) admit(c *conn) (admitted bool, victim *conn, freed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !c.known && s.unknown[c.host] >= s.mostUnknown:
		if victim = s.oldest(func(o *conn) bool { return !o.known && o.host == c.host }); victim == nil {
			victim = c
		}
		s.closes(closedForAddress, victim)
		return false, victim, nil
	case len(s.all) < s.most:
		s.full = time.Time{}
		s.all[c] = struct{}{}
		if !c.known {
			s.unknown[c.host]++
			s.limit(c)
		}
		return true, nil, nil
	}
	if victim = s.victim(); victim != nil {
		s.closes(closedForRoom, victim)
		return false, victim, nil
	}
	if s.full.IsZero() {
		s.full = time.Now()
	}
	return false, nil, s.freed
}

// victim is the idle connection to close if there are too many: of those that are unknown, the oldest of the address
// that has the most of them; otherwise the oldest. A client opens another one when it needs it. s.mu is held.
func (s *connections) victim() *conn {
	var out *conn
	for c := range s.all {
		if !c.busy && !c.known && (out == nil || s.unknown[c.host] > s.unknown[out.host] ||
			s.unknown[c.host] == s.unknown[out.host] && c.since.Before(out.since)) {
			out = c
		}
	}
	if out == nil {
		out = s.oldest(func(*conn) bool { return true })
	}
	return out
}

// oldest is the connection that has been idle for longest. s.mu is held.
func (s *connections) oldest(among func(*conn) bool) *conn {
	var out *conn
	for c := range s.all {
		if !c.busy && among(c) && (out == nil || c.since.Before(out.since)) {
			out = c
		}
	}
	return out
}

// closes notes that a connection is closed. s.mu is held.
func (s *connections) closes(why string, c *conn) {
	s.closed[why]++
	s.quiet.Do(func() {
		s.log.Info("Connections are closed to make room for others; raise limits.connections if these are your workers'",
			"address", c.host, "unknownOfAddress", s.unknown[c.host], "connections", len(s.all), "limit", s.most,
			"limitOfUnknownOfAddress", s.mostUnknown)
	})
}

// remove forgets a connection.
func (s *connections) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.all[c]; !there {
		return
	}
	delete(s.all, c)
	s.recognize(c)
	close(s.freed)
	s.freed = make(chan struct{})
}

// recognize has a connection not count as unknown. s.mu is held.
func (s *connections) recognize(c *conn) {
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.known {
		return
	}
	c.known = true
	if s.unknown[c.host]--; s.unknown[c.host] == 0 {
		delete(s.unknown, c.host)
	}
}

// limit closes an unknown connection when it has been without a request for too long. s.mu is held.
func (s *connections) limit(c *conn) {
	c.timer = time.AfterFunc(s.idle, func() {
		s.mu.Lock()
		late := !c.known && !c.busy
		if late {
			s.closed[closedIdle]++
		}
		s.mu.Unlock()
		if late {
			_ = c.Close()
		}
	})
}

// changed is http.Server.ConnState.
func (s *connections) changed(nc net.Conn, state http.ConnState) {
	c := connOf(nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.all[c]; !there || state != http.StateActive && state != http.StateIdle {
		return
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	c.busy, c.since = state == http.StateActive, time.Now()
	if !c.busy && !c.known {
		s.limit(c)
	}
}

func connOf(nc net.Conn) *conn {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	c, _ := nc.(*conn)
	return c
}

type connKey struct{}

// context is http.Server.ConnContext.
func (*connections) context(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, connOf(nc))
}

// Trust notes that a request has shown who sent it. Its connection may stay idle from then on, and does not make room
// for others. ctx is that of the request.
func Trust(ctx context.Context) {
	c, _ := ctx.Value(connKey{}).(*conn)
	if c == nil {
		return
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if _, there := c.in.all[c]; there {
		c.in.recognize(c)
	}
}

// Connections are figures of the connections of a server.
type Connections struct {
	// Known have shown a valid token; Unknown have not.
	Known, Unknown int
	// Closed is how many were closed, by the reason.
	Closed map[string]int
	// Limit is how many there may be. Full is since when new ones wait, since all are busy; zero: they do not.
	Limit int
	Full  time.Time
}

func (s *connections) figures() Connections {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Connections{Known: len(s.all), Closed: map[string]int{}, Limit: s.most, Full: s.full}
	for _, n := range s.unknown {
		out.Known, out.Unknown = out.Known-n, out.Unknown+n
	}
	for why, n := range s.closed {
		out.Closed[why] = n
	}
	return out
}
