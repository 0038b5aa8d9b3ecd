package agent

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-dev/rota/apiservers/front"
	"github.com/rota-dev/rota/apiservers/front/fronttest"
	"github.com/rota-dev/rota/apiservers/front/haproxy"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/require"
)

// backendServer answers checks as a test tells it to, which no API server does on demand.
type backendServer struct {
	address string
	// status is the answer to /readyz, after a while; hangs is set if it does not even speak TLS.
	status atomic.Int32
	after  atomic.Int64
	hangs  atomic.Bool
}

// hanging are connections that nobody answers while the server hangs.
type hanging struct {
	net.Listener
	s *backendServer
	t *testing.T
}

type hangingConn struct {
	net.Conn
	l hanging
}

func (l hanging) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return hangingConn{c, l}, err
}

func (c hangingConn) Read(b []byte) (int, error) {
	for c.l.s.hangs.Load() {
		if err := await.Sleep(c.l.t.Context(), 10*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return c.Conn.Read(b)
}

func serve(t *testing.T, address string, certificate tls.Certificate) *backendServer {
	t.Helper()
	s := &backendServer{address: address}
	s.status.Store(http.StatusOK)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	server := &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: nil, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" {
				_ = await.Sleep(r.Context(), time.Duration(s.after.Load()))
				w.WriteHeader(int(s.status.Load()))
				return
			}
			_, _ = io.WriteString(w, address)
		})}
	server.SetKeepAlivesEnabled(true)
	go func() {
		_ = server.Serve(tls.NewListener(hanging{l, s, t}, &tls.Config{Certificates: []tls.Certificate{certificate},
			MinVersion: tls.VersionTLS12}))
	}()
	t.Cleanup(func() { _ = server.Close() })
	return s
}

// connection is one of a client, through the front.
type connection struct {
	conn   *tls.Conn
	reader *bufio.Reader
	at     string // the server at its other end
}

func connect(t *testing.T, f *front.Front) *connection {
	t.Helper()
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: limit}, "tcp", f.Listen,
		&tls.Config{InsecureSkipVerify: true}) // the test's own server
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	c := &connection{conn: conn, reader: bufio.NewReader(conn)}
	if c.at, err = c.ask(); err != nil {
		t.Fatal(err)
	}
	return c
}

// ask asks the server for its address.
func (c *connection) ask() (string, error) {
	if _, err := io.WriteString(c.conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return "", err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(response.Body)
	return string(text), errors.Join(err, response.Body.Close())
}

func (c *connection) lives(t *testing.T, why string) {
	t.Helper()
	if at, err := c.ask(); err != nil || at != c.at {
		t.Errorf("the connection to %s is cut, %s: %v", c.at, why, err)
	}
}

// isCut waits until the front has ended the connection.
func (c *connection) isCut(t *testing.T, why string) {
	t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(limit))
	if _, err := c.reader.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection to %s goes on, %s: %v", c.at, why, err)
	}
}

// TestNotReady: a server that says that it is not ready keeps its connections and gets no new ones. When all say so they
// go on to get new ones. Only a server that does not answer is down, and loses its connections.
func TestNotReady(t *testing.T) {
	cert, key := fronttest.Certificate(t, "kubernetes")
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	a := alone(t, func(f *front.Front) {
		f.Static = []string{"10.0.4.9:6443"}
		f.Interval.Duration, f.Timeout.Duration = time.Second, time.Second // for busy machines
		require.NoError(t, os.WriteFile(f.CA, cert, 0o600))
	})
	static, one, two := serve(t, "10.0.4.9:6443", pair), serve(t, "10.0.4.1:6443", pair), serve(t, "10.0.4.2:6443", pair)
	tick := func() {
		t.Helper()
		if a.tick(t.Context()); a.logged != "" {
			t.Error(a.logged)
		}
	}
	// are waits until HAProxy says of a server what it should.
	are := func(want string, servers ...*backendServer) {
		t.Helper()
		if err := await.Until(t.Context(), 10*time.Millisecond, limit, func() string {
			seen, err := a.column(t, "status")
			for _, s := range servers {
				if is := seen[s.address]; is != want {
					return fmt.Sprintf("%s is %s, want %s: %v", s.address, is, want, err)
				}
			}
			return ""
		}); err != nil {
			t.Fatal(err)
		}
	}
	a.update(t.Context(), []front.Server{{Address: one.address}, {Address: two.address}})
	are("UP", static, one, two)

	first := connect(t, a.front)
	ill, well := one, two
	if first.at == two.address {
		ill, well = two, one
	}
	ill.status.Store(http.StatusInternalServerError)
	are("NOLB", ill)
	second := connect(t, a.front)
	first.lives(t, "though its server answers")
	if second.at != well.address {
		t.Errorf("a new connection is to %s, want %s, which is ready", second.at, well.address)
	}

	// An answer may take longer than TLS, as when the API server waits for etcd.
	well.after.Store(int64(2 * a.front.Timeout.Duration))
	require.NoError(t, await.Until(t.Context(), 10*time.Millisecond, limit, func() string {
		seen, err := a.column(t, "check_duration")
		if d, _ := time.ParseDuration(seen[well.address] + "ms"); d < 2*a.front.Timeout.Duration {
			return fmt.Sprint("checks take ", d, err)
		}
		return ""
	}))
	are("UP", well)
	well.after.Store(0)

	// None is ready.
	for _, s := range []*backendServer{well, static} {
		s.status.Store(http.StatusInternalServerError)
	}
	are("NOLB", static, one, two)
	others := map[string]*connection{}
	for range 3 {
		c := connect(t, a.front)
		others[c.at] = c
	}
	if len(others) != 3 {
		t.Fatalf("new connections are to %d servers, want all three: %v", len(others), others)
	}
	tick()
	for _, c := range []*connection{first, second, others[one.address], others[two.address], others[static.address]} {
		c.lives(t, "while no server is ready")
	}

	// One hangs: TCP goes on, TLS does not.
	ill.hangs.Store(true)
	are("DOWN", ill)
	first.isCut(t, "though its server is down")
	if seen, err := a.column(t, "check_status"); err != nil || strings.TrimPrefix(seen[ill.address], "* ") != "L6TOUT" {
		t.Errorf("the check of a server that does not speak TLS ended with %q, %v", seen[ill.address], err)
	}
	tick()
	others[static.address].lives(t, "while no server is ready")
	well.status.Store(http.StatusOK)
	are("UP", well)
	tick()
	others[ill.address].isCut(t, "though its server is down and another is ready")
	others[static.address].isCut(t, "though a server of the Deployment is ready")
	others[well.address].lives(t, "though it is ready")
	second.lives(t, "though it is ready")
	ill.hangs.Store(false)
	are("NOLB", ill) // and not UP

	// One says for long that it is not ready, while another is.
	ill.status.Store(http.StatusOK)
	well.status.Store(http.StatusInternalServerError)
	are("UP", ill)
	are("NOLB", well)
	tick()
	second.lives(t, "though its server has just said that it is not ready")
	a.haproxy.leniency = time.Nanosecond
	tick()
	second.isCut(t, "though its server has not been ready for long")

	// It is gone while a connection is open, in the backend without checks only.
	a.update(t.Context(), []front.Server{{Address: ill.address}})
	tick()
	others[well.address].lives(t, "though it drains")
	_ = others[well.address].conn.Close()
	if err := await.Until(t.Context(), 10*time.Millisecond, limit, func() string {
		tick()
		seen, err := a.haproxy.look(t.Context())
		if err != nil || len(seen[front.Backend]) != 2 || len(seen[front.Unchecked]) != 2 {
			return fmt.Sprint(seen, err)
		}
		return ""
	}); err != nil {
		t.Error(err)
	}
}

// column is a column of HAProxy's statistics, by server's address, in the backend with checks.
func (a *agent) column(t *testing.T, name string) (map[string]string, error) {
	t.Helper()
	text, err := haproxy.Ask(t.Context(), a.haproxy.admin, "show stat "+front.Backend+" 4 -1")
	if err != nil {
		return nil, err
	}
	rows, err := haproxy.Table(text)
	out := map[string]string{}
	for _, r := range rows {
		out[r["addr"]] = r[name]
	}
	return out, err
}

// TestMaintenance: a server that somebody has put into maintenance is used again, in both backends, a static one, too.
func TestMaintenance(t *testing.T) {
	a := alone(t, nil)
	s := front.Server{Address: "10.0.2.7:6443"}
	a.update(t.Context(), []front.Server{s})
	ids := []string{front.ServerID(s.Address), front.StaticID(a.front.Static[0])}
	for _, backend := range []string{front.Backend, front.Unchecked} {
		for _, id := range ids {
			require.NoError(t, a.haproxy.do(t.Context(), "set server %s/%s state maint", backend, id))
		}
	}
	for want, look := range []func(context.Context){func(context.Context) {}, a.tick} {
		look(t.Context())
		seen, err := a.haproxy.look(t.Context())
		for backend, all := range seen {
			for _, id := range ids {
				if is, ok := all[id]; err != nil || !ok || is.maint == (want == 1) || is.weight != 1 {
					t.Errorf("%s/%s: %+v, %v", backend, id, is, err)
				}
			}
		}
	}
}
