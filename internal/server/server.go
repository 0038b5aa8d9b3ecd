// Package server serves HTTP to many untrusted clients. It limits the cost of each connection, disconnects slow
// clients, and rereads certificates when their files change.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// Options configure a Server.
type Options struct {
	// Address is the address to listen on, for example ":8443".
	Address string
	// CertFile and KeyFile contain the certificate and its key in PEM. Without both, the server speaks plain HTTP.
	CertFile, KeyFile string
	// Connections is the maximum number of open connections. Further ones wait. Default 10,000.
	Connections int
	// Authenticates is true if Handler calls Trust for requests with a valid token. Connections without such a request are
	// closed after a while, make room for others, and are limited to a tenth of Connections per address.
	Authenticates bool
	Handler       http.Handler
	Logger        logr.Logger

	times times
}

// times bound how long clients may take. Tests shorten them.
type times struct {
	// header is how long a client may take for the TLS handshake and the header of a request, body for the body.
	header, body time.Duration
	// idle is how long a connection may be without a request, and unknown how long it may be without a valid token.
	idle, unknown time.Duration
	// ping is how long an HTTP/2 connection may be silent before the server pings the client.
	ping time.Duration
	// stuck is how long an HTTP/2 client may take to read any data, or to answer a ping.
	stuck time.Duration
	// reread is how often certificates are reread. Where the file system reports changes, they are noticed at once.
	reread time.Duration
}

func (t *times) setDefaults() {
	t.header = cmp.Or(t.header, 10*time.Second)
	t.body = cmp.Or(t.body, 10*time.Second)
	t.idle = cmp.Or(t.idle, 2*time.Minute)
	t.unknown = cmp.Or(t.unknown, 20*time.Second)
	t.ping = cmp.Or(t.ping, 20*time.Second)
	t.stuck = cmp.Or(t.stuck, 15*time.Second)
	t.reread = cmp.Or(t.reread, 10*time.Second)
}

// maxHeader is the largest header, in bytes. It fits a token and other headers.
const maxHeader = 32 << 10

// Server serves requests once Run is called.
type Server struct {
	listener net.Listener
	conns    *connections // nil unless the handler authenticates
	http     *http.Server
	certs    *certwatcher.CertWatcher // nil: plain HTTP
	log      logr.Logger
}

// Listen opens the port and reads the certificate. Connections wait until Run.
func Listen(ctx context.Context, o Options) (*Server, error) {
	o.times.setDefaults()
	s := &Server{log: o.Logger, http: &http.Server{
		Handler: bounded(o.Handler, o.times.body), ReadHeaderTimeout: o.times.header, IdleTimeout: o.times.idle,
		MaxHeaderBytes: maxHeader, ErrorLog: log.New(lines{o.Logger}, "", 0),
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: o.times.ping, PingTimeout: o.times.stuck, WriteByteTimeout: o.times.stuck,
			MaxReceiveBufferPerConnection: 512 << 10, MaxReceiveBufferPerStream: 128 << 10,
		},
	}}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, errors.New("there is a certificate without a key, or a key without a certificate: give both")
	}
	if o.CertFile != "" {
		var err error
		if s.certs, err = certwatcher.New(o.CertFile, o.KeyFile); err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", o.CertFile, o.KeyFile, err)
		}
		s.certs.WithWatchInterval(o.times.reread)
		s.http.TLSConfig = &tls.Config{GetCertificate: s.certs.GetCertificate, MinVersion: tls.VersionTLS12}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", o.Address, err)
	}
	s.track(listener, o)
	return s, nil
}

// track makes the server limit the connections of a listener.
func (s *Server) track(l net.Listener, o Options) {
	most := cmp.Or(o.Connections, 10_000)
	if !o.Authenticates {
		s.listener = netutil.LimitListener(l, most)
		return
	}
	s.conns = newConnections(most, o.times.unknown, o.Logger)
	s.http.ConnContext = s.conns.context
	s.listener = s.conns.limited(l)
}

// Addr is the address that the server listens on.
func (s *Server) Addr() *net.TCPAddr {
	addr, _ := s.listener.Addr().(*net.TCPAddr)
	return addr
}

// Connections returns connection statistics. Call it only if Options.Authenticates is set.
func (s *Server) Connections() Connections { return s.conns.figures() }

// Run serves until Shutdown or Close.
func (s *Server) Run() error {
	err := s.serve()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve on %s: %w", s.listener.Addr(), err)
}

func (s *Server) serve() error {
	if s.certs == nil {
		return s.http.Serve(s.listener)
	}
	watching, end := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() {
		if err := s.certs.Start(watching); err != nil {
			s.log.Error(err, "Certificates are not read again when they change")
		}
	})
	defer watch.Wait()
	defer end()
	return s.http.ServeTLS(s.listener, "", "")
}

// Shutdown stops accepting requests, and returns when those in flight have been answered. When ctx ends, it aborts
// them.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}

// Close aborts all connections.
func (s *Server) Close() error {
	// Both close the listener, and so may Run when it ends.
	var errs []error
	for _, closer := range []func() error{s.http.Close, s.listener.Close} {
		if err := closer(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// bounded limits the time for a body. A handler that reads all of the body replaces the limit with its own deadline.
// The server's own limit would end requests that wait for their answer.
func bounded(next http.Handler, body time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(body))
		}
		next.ServeHTTP(w, r)
	})
}

// lines logs http.Server's messages about single connections at V(1), since clients cause them.
type lines struct{ logr.Logger }

func (l lines) Write(text []byte) (int, error) {
	l.V(1).Info("A connection failed", "cause", string(text))
	return len(text), nil
}
