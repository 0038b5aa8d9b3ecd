package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
)

// Headers of requests between members. Refused is set on an answer to a request that was not served.
const (
	headerRoute   = "Rota-Route"
	headerRefused = "Rota-Refused"
)

const (
	// maxConnections is the largest number of open connections that a Server accepts. More wait.
	maxConnections = 10_000
	// endTime is how long requests in flight may take when a member ends.
	endTime = 3 * time.Second
)

// Server serves requests of other members. Its methods may be called concurrently.
type Server struct {
	directory *Directory
	http      *http.Server

	mu     sync.Mutex
	routes map[string]http.Handler
}

// NewServer returns a server without routes.
func NewServer(key *Key, d *Directory, l logr.Logger) *Server {
	s := &Server{directory: d, routes: map[string]http.Handler{}}
	s.http = &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(l.V(1)), slog.LevelInfo), // broken handshakes, panics of handlers
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}, ClientAuth: tls.RequireAnyClientCert,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return key.certificate("") },
			VerifyConnection: func(s tls.ConnectionState) error {
				return d.check(context.Background(), s.PeerCertificates[0].Subject.CommonName, &s)
			},
		},
	}
	return s
}

// Handle adds a route. It returns an error if there is one with this name.
func (s *Server) Handle(route string, h http.Handler) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.routes[route] != nil {
		return fmt.Errorf("there is a handler of %s already", route)
	}
	s.routes[route] = h
	return nil
}

// Serve accepts connections until ctx ends. Then it waits for requests in flight, for endTime at most.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		if s.http.Shutdown(limited) != nil {
			_ = s.http.Close()
		}
	})
	err := s.http.ServeTLS(netutil.LimitListener(l, maxConnections), "", "")
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// ServeHTTP serves a request of another member, whose key was checked in the handshake. It may have left since.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if from := req.TLS.PeerCertificates[0].Subject.CommonName; !s.directory.names(from) {
		Refuse(w, fmt.Sprintf("the table does not name member %q", from))
		return
	}
	route := req.Header.Get(headerRoute)
	s.mu.Lock()
	h := s.routes[route]
	s.mu.Unlock()
	if h == nil {
		Refuse(w, fmt.Sprintf("this member has no handler of %s", route))
		return
	}
	req.Header.Del(headerRoute)
	h.ServeHTTP(w, req)
}

// Refuse answers a request that the member does not serve, for example because it does not own the object.
func Refuse(w http.ResponseWriter, why string) {
	w.Header().Set(headerRefused, "true")
	http.Error(w, why, http.StatusMisdirectedRequest)
}
