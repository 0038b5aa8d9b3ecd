package peer

import (
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
)

// Headers of requests between members. Refused is set on an answer to a request that was not served.
const (
	headerFrom    = "Rota-Member"
	headerRoute   = "Rota-Route"
	headerRefused = "Rota-Refused"
)

// maxConnections is the largest number of open connections that a Server accepts. More wait.
const maxConnections = 10_000

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
		Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: log.New(lines{l}, "", 0),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{key.cert}, ClientAuth: tls.RequireAnyClientCert,
			NextProtos: []string{"http/1.1"},
		},
	}
	return s
}

// lines logs what net/http prints: broken handshakes, and panics of handlers.
type lines struct{ log logr.Logger }

func (l lines) Write(text []byte) (int, error) {
	l.log.V(1).Info("Connection between members", "cause", string(text))
	return len(text), nil
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

// Serve accepts connections until ctx ends. Then it waits for requests in flight, but not for long.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if s.http.Shutdown(limited) != nil {
			_ = s.http.Close()
		}
	})
	defer stop()
	err := s.http.ServeTLS(netutil.LimitListener(l, maxConnections), "", "")
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// ServeHTTP serves a request of another member.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	from, route := req.Header.Get(headerFrom), req.Header.Get(headerRoute)
	entry, err := s.directory.Lookup(req.Context(), from)
	switch {
	case err != nil:
		Refuse(w, err.Error())
		return
	case !entry.matches(req.TLS):
		Refuse(w, fmt.Sprintf("the client's key is not the one in the Lease of member %s", from))
		return
	}
	s.mu.Lock()
	h := s.routes[route]
	s.mu.Unlock()
	if h == nil {
		Refuse(w, fmt.Sprintf("this member has no handler of %s", route))
		return
	}
	req.Header.Del(headerFrom)
	req.Header.Del(headerRoute)
	h.ServeHTTP(w, req)
}

// Refuse answers a request that the member does not serve, for example because it does not own the object.
func Refuse(w http.ResponseWriter, why string) {
	w.Header().Set(headerRefused, "true")
	http.Error(w, why, http.StatusMisdirectedRequest)
}
