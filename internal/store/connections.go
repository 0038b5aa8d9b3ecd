package store

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// connections tracks the open connections of one HTTP client, so that dead ones can be closed. HTTP/2 uses a dead
// connection for 45 s before it notices. By that time the Lease would be lost.
type connections struct {
	mu   sync.Mutex
	open map[*connection]struct{}
}

// dial wraps a dialer and tracks its connections.
func (c *connections) dial(next dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		inner, err := next(ctx, network, address)
		if err != nil {
			return nil, err
		}
		conn := &connection{Conn: inner, all: c, gone: make(chan struct{})}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open[conn] = struct{}{}
		return conn, nil
	}
}

// dropSilent closes the connections on which nothing was read after since. It returns when the HTTP client has dropped
// them, since until then the client may send the next call over one of them.
func (c *connections) dropSilent(since time.Time) {
	c.mu.Lock()
	var silent []*connection
	for conn := range c.open {
		if last := conn.lastRead.Load(); last == nil || last.Before(since) {
			silent = append(silent, conn)
		}
	}
	c.mu.Unlock()
	for _, conn := range silent {
		_ = conn.Conn.Close()
	}
	soon := time.NewTimer(giveUpTime)
	defer soon.Stop()
	for _, conn := range silent {
		select {
		case <-conn.gone:
		case <-soon.C:
			return
		}
	}
}

// giveUpTime limits the wait for the HTTP client, which drops a connection as soon as its reader gets an error.
const giveUpTime = 100 * time.Millisecond

type connection struct {
	net.Conn
	all      *connections
	lastRead atomic.Pointer[time.Time]
	once     sync.Once
	gone     chan struct{} // closed once the HTTP client has removed the connection from its pool and closed it
}

func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		now := time.Now()
		c.lastRead.Store(&now)
	}
	return n, err
}

func (c *connection) Close() error {
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}
