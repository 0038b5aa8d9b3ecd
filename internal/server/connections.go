package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
	"golang.org/x/time/rate"
)

// connections limits the connections of a server and closes strangers, so that clients without a valid token cannot
// crowd out others. A connection is a stranger until a request on it has shown a valid token (Trust).
type connections struct {
	most        int           // limit of all connections
	mostUnknown int           // limit of strangers from one address
	patience    time.Duration // how long a connection may remain a stranger
	log         logr.Logger
	quiet       rate.Sometimes // of logs

	mu        sync.Mutex
	all       int
	strangers list.List      // of *conn, the oldest first
	unknown   map[string]int // strangers by address
	closed    map[string]int // connections closed, by reason
	full      time.Time      // since when new connections must wait, or zero
}

// Reasons for closing a connection.
const (
	closedForRoom    = "room"    // to make room for another one
	closedForAddress = "address" // its address has too many strangers
	closedIdle       = "idle"    // it remained a stranger for too long
)

func newConnections(most int, patience time.Duration, log logr.Logger) *connections {
	return &connections{
		most: most, mostUnknown: max(most/10, 8), patience: patience, log: log,
		quiet: rate.Sometimes{First: 1, Interval: time.Minute}, unknown: map[string]int{},
		closed: map[string]int{closedForRoom: 0, closedForAddress: 0, closedIdle: 0},
	}
}

// conn is one connection. connections.mu guards its fields.
type conn struct {
	net.Conn
	in       *connections
	host     string
	stranger *list.Element // nil once the client is known, or the connection closed
	timer    *time.Timer   // closes a stranger
	gone     bool
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.in.remove(c)
	return c.Conn.Close()
}

// listener registers accepted connections.
type listener struct {
	net.Listener
	in *connections
}

// limited bounds the connections of a listener.
func (s *connections) limited(l net.Listener) net.Listener {
	return listener{netutil.LimitListener(l, s.most), s}
}

// Accept implements net.Listener. It waits while there are too many connections.
func (l listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	host := raw.RemoteAddr().String()
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	c := &conn{Conn: raw, in: l.in, host: host}
	if victim := l.in.add(c); victim != nil {
		_ = victim.Close()
	}
	return c, nil
}

// add registers a connection. If there is one too many, it returns a stranger to close: the oldest of the same address,
// or, if the next connection would have to wait, the oldest of the address with the most strangers.
func (s *connections) add(c *conn) (victim *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all++
	c.stranger = s.strangers.PushBack(c)
	s.unknown[c.host]++
	c.timer = time.AfterFunc(s.patience, func() { s.expire(c) })
	switch {
	case s.unknown[c.host] > s.mostUnknown:
		victim = s.victim(c, func(o *conn) bool { return o.host == c.host })
		s.closes(closedForAddress, victim)
	case s.all >= s.most:
		if victim = s.victim(c, func(*conn) bool { return true }); victim != nil {
			s.closes(closedForRoom, victim)
		} else {
			s.full = time.Now()
		}
	}
	return victim
}

// victim returns the oldest stranger, except newest, of the address with the most strangers. s.mu is held.
func (s *connections) victim(newest *conn, among func(*conn) bool) (out *conn) {
	for e := s.strangers.Front(); e != newest.stranger; e = e.Next() {
		c, _ := e.Value.(*conn)
		if among(c) && (out == nil || s.unknown[c.host] > s.unknown[out.host]) {
			out = c
		}
	}
	return out
}

// closes counts a connection that is being closed. s.mu is held.
func (s *connections) closes(why string, c *conn) {
	s.closed[why]++
	s.quiet.Do(func() {
		s.log.Info("Connections are closed to make room for others; raise limits.connections if these are your workers'",
			"address", c.host, "unknownOfAddress", s.unknown[c.host], "connections", s.all, "limit", s.most,
			"limitOfUnknownOfAddress", s.mostUnknown)
	})
}

// expire closes a connection that is still a stranger.
func (s *connections) expire(c *conn) {
	s.mu.Lock()
	late := c.stranger != nil
	if late {
		s.closed[closedIdle]++
	}
	s.mu.Unlock()
	if late {
		_ = c.Close()
	}
}

// remove unregisters a connection.
func (s *connections) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.gone {
		return
	}
	c.gone = true
	s.all--
	s.full = time.Time{}
	s.recognize(c)
}

// recognize marks a connection as no longer a stranger. s.mu is held.
func (s *connections) recognize(c *conn) {
	if c.stranger == nil {
		return
	}
	c.timer.Stop()
	s.strangers.Remove(c.stranger)
	c.stranger = nil
	if s.unknown[c.host]--; s.unknown[c.host] == 0 {
		delete(s.unknown, c.host)
	}
}

type connKey struct{}

// context is http.Server.ConnContext.
func (*connections) context(ctx context.Context, nc net.Conn) context.Context {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	c, _ := nc.(*conn)
	return context.WithValue(ctx, connKey{}, c)
}

// Trust records that a request has shown a valid token, so its connection is no longer a stranger. ctx is the
// request's.
func Trust(ctx context.Context) {
	c, _ := ctx.Value(connKey{}).(*conn)
	if c == nil {
		return
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.recognize(c)
}

// Connections are the figures of a server's connections.
type Connections struct {
	// Known connections have shown a valid token. Unknown ones have not.
	Known, Unknown int
	// Closed counts closed connections by reason.
	Closed map[string]int
	// Limit is how many there may be. Full is since when new ones must wait, or zero if they need not.
	Limit int
	Full  time.Time
}

func (s *connections) figures() Connections {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Connections{
		Known: s.all - s.strangers.Len(), Unknown: s.strangers.Len(), Closed: map[string]int{}, Limit: s.most, Full: s.full,
	}
	for why, n := range s.closed {
		out.Closed[why] = n
	}
	return out
}
