package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/rota-dev/rota/test/require"
)

// network is a listener whose connections are in memory.
type network struct {
	conns chan net.Conn
	close func() // may be called again
}

func newNetwork() network {
	conns := make(chan net.Conn)
	return network{conns, sync.OnceFunc(func() { close(conns) })}
}

func (n network) Accept() (net.Conn, error) {
	if c, ok := <-n.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (n network) Close() error {
	n.close()
	return nil
}

func (network) Addr() net.Addr { return &net.TCPAddr{} }

// end is one end of a connection, from an address.
type end struct {
	net.Conn
	host string
}

func (e end) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(e.host), Port: 1234} }

// peer is a client.
type peer struct {
	net.Conn
	in *bufio.Reader
}

// dial connects from an address. It returns although the server has not accepted.
func (n network) dial(host string) *peer {
	mine, theirs := net.Pipe()
	go func() { n.conns <- end{theirs, host} }()
	synctest.Wait()
	return &peer{Conn: mine, in: bufio.NewReader(mine)}
}

// ask sends a request, and waits for the answer until all is quiet. The error is io.EOF if the connection was closed.
func (p *peer) ask(token string) error {
	done := make(chan error, 1)
	go func() {
		_, err := io.WriteString(p, "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: "+token+"\r\n\r\n")
		if err == nil {
			var answer *http.Response
			if answer, err = http.ReadResponse(p.in, nil); err == nil {
				err = answer.Body.Close()
			}
		}
		done <- err
	}()
	synctest.Wait()
	select {
	case err := <-done:
		return err
	default:
		return errWaits
	}
}

type waits struct{}

func (waits) Error() string { return "it waits" }

var errWaits = waits{}

// inMemory runs a server that knows requests with the token "good" in a bubble of synctest.
func inMemory(t *testing.T, most int, do func(*Server, network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := &Server{http: &http.Server{
			IdleTimeout: 2 * time.Minute, ReadHeaderTimeout: 10 * time.Second,
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") == "good" {
					Trust(r.Context())
				}
			}),
		}}
		s.track(n, Options{Connections: most, Authenticates: true, Logger: logr.Discard(),
			times: times{unknown: 20 * time.Second}})
		ran := make(chan error, 1)
		go func() { ran <- s.Run() }()
		do(s, n)
		require.NoError(t, s.Close())
		require.NoError(t, <-ran)
	})
}

// Connections without a valid token keep nobody out: the oldest of the address that has most of them makes room. Those
// of workers stay.
func TestUnknownConnectionsMakeRoom(t *testing.T) {
	inMemory(t, 10, func(s *Server, n network) {
		worker, other := n.dial("10.0.0.1"), n.dial("10.0.0.2")
		for _, err := range []error{worker.ask("good"), other.ask("none")} {
			require.NoError(t, err)
		}
		time.Sleep(time.Second)
		var strangers []*peer
		for range 7 {
			p := n.dial("10.0.0.3")
			require.NoError(t, p.ask("none"))
			strangers = append(strangers, p)
			time.Sleep(time.Millisecond)
		}
		for i := range 2 { // the tenth connection, and one more
			if err := n.dial("10.0.0.4").ask("good"); err != nil {
				t.Error("a newcomer:", err)
			}
			if err := strangers[i].ask("none"); err == nil {
				t.Error("the oldest connection of the address with most of them is still there")
			}
		}
		for i, err := range []error{other.ask("none"), worker.ask("good"), strangers[2].ask("none")} {
			if err != nil {
				t.Errorf("connection %d: %v", i, err)
			}
		}
		if f := s.Connections(); f.Known != 3 || f.Unknown != 6 || f.Closed[closedForRoom] != 2 || !f.Full.IsZero() {
			t.Errorf("figures %+v", f)
		}
	})
}

// One address has so many unknown connections at most, however much room there is.
func TestUnknownConnectionsOfAnAddress(t *testing.T) {
	inMemory(t, 100, func(s *Server, n network) {
		var all []*peer
		for range 30 {
			all = append(all, n.dial("10.0.0.3"))
			time.Sleep(time.Millisecond)
		}
		if f := s.Connections(); f.Unknown != 10 || f.Closed[closedForAddress] != 20 {
			t.Errorf("figures %+v", f)
		}
		for i, p := range all {
			if err := p.ask("good"); (err == nil) != (i >= 20) {
				t.Errorf("connection %d: %v", i, err)
			}
		}
		for range 30 { // those that are known do not count
			require.NoError(t, n.dial("10.0.0.3").ask("good"))
		}
	})
}

// A connection on which no request has shown a valid token is closed after a while. One of a worker is not.
func TestUnknownConnectionsEndSoon(t *testing.T) {
	inMemory(t, 100, func(s *Server, n network) {
		worker, reader, silent := n.dial("10.0.0.1"), n.dial("10.0.0.1"), n.dial("10.0.0.1")
		defer silent.Close()
		require.NoError(t, worker.ask("good"))
		for range 3 {
			require.NoError(t, reader.ask("none"))
			time.Sleep(7 * time.Second)
		}
		if err := reader.ask("none"); err == nil {
			t.Error("a connection without a token is still there after 21 s")
		}
		if f := s.Connections(); f.Known != 1 || f.Unknown != 0 || f.Closed[closedIdle] != 1 {
			t.Errorf("figures %+v", f) // the server itself closed the silent one
		}
		time.Sleep(time.Minute)
		if err := worker.ask("good"); err != nil {
			t.Error("a worker's connection:", err)
		}
	})
}

// Where clients with valid tokens have all connections, further ones wait, and the figures show it.
func TestFull(t *testing.T) {
	inMemory(t, 2, func(s *Server, n network) {
		a := n.dial("10.0.0.1")
		require.NoError(t, a.ask("good"))
		b := n.dial("10.0.0.1")
		require.NoError(t, b.ask("good"))
		c := n.dial("10.0.0.2")
		if err := c.ask("good"); err != errWaits || s.Connections().Full.IsZero() { //nolint:errorlint // it is never wrapped
			t.Errorf("the third connection: %v; figures %+v", err, s.Connections())
		}
		a.Close()
		synctest.Wait()
		if f := s.Connections(); f.Known != 2 {
			t.Errorf("the third connection still waits although another one has gone: figures %+v", f)
		}
		b.Close()
		synctest.Wait()
		if f := s.Connections(); !f.Full.IsZero() {
			t.Errorf("figures %+v", f)
		}
		c.Close()
	})
}
