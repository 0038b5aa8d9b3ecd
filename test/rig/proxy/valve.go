package proxy

import (
	"net"
	"sync"
	"time"
)

// A valve lets the bytes of one direction through, or not.
type valve struct {
	mu   sync.Mutex
	open chan struct{} // closed while it is open
}

func newValve() *valve {
	v := &valve{open: make(chan struct{})}
	close(v.open)
	return v
}

func (v *valve) set(shut bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	select {
	case <-v.open:
		if shut {
			v.open = make(chan struct{})
		}
	default:
		if !shut {
			close(v.open)
		}
	}
}

// wait returns when the valve is open, or false when the connection has been closed.
func (v *valve) wait(closed <-chan struct{}) bool {
	for {
		v.mu.Lock()
		open := v.open
		v.mu.Unlock()
		select {
		case <-open:
			return true
		case <-closed:
			return false
		}
	}
}

// listener wraps the connections that it accepts.
type listener struct {
	net.Listener
	proxy *Proxy
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: inner, proxy: l.proxy, closed: make(chan struct{})}, nil
}

// conn is a connection of the client.
type conn struct {
	net.Conn
	proxy  *Proxy
	once   sync.Once
	closed chan struct{}
}

// Read implements net.Conn. What was read while the valve was shut has not arrived before it opens.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.proxy.requests.wait(c.closed) {
		return 0, net.ErrClosed
	}
	return n, err
}

// chunk is the most that is written at a time while the client is throttled.
const chunk = 4 << 10

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	written := 0
	for len(b) > 0 {
		part := b
		if rate := c.proxy.faults().BytesPerSecond; rate > 0 {
			part = part[:min(len(part), chunk)]
			if !c.pause(time.Duration(len(part)) * time.Second / time.Duration(rate)) {
				return written, net.ErrClosed
			}
		}
		if !c.proxy.responses.wait(c.closed) {
			return written, net.ErrClosed
		}
		n, err := c.Conn.Write(part)
		written += n
		if err != nil {
			return written, err
		}
		b = b[n:]
	}
	return written, nil
}

func (c *conn) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.closed:
		return false
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
