package store

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// connections knows the open connections of one HTTP client, to give up a dead one: HTTP/2 notices only after 45 s,
// and goes on using it until then; the Lease would be lost by that time.
type connections struct {
	mu   sync.Mutex
	open map[*connection]struct{}
}

// dial wraps a dialer.
func (c *connections) dial(next dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		inner, err := next(ctx, network, address)
		if err != nil {
			return nil, err
		}
		conn := &connection{Conn: inner, all: c}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open[conn] = struct{}{}
		return conn, nil
	}
}

// dropSilent closes the connections from which nothing was read since then.
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
		_ = conn.Close()
	}
}

type connection struct {
	net.Conn
	all      *connections
	lastRead atomic.Pointer[time.Time]
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
	return c.Conn.Close()
}
