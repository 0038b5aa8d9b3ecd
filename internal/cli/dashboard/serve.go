package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/go-logr/logr"

	"github.com/rota-dev/rota/internal/server"
)

// connections limits concurrent connections: each open page has one, and a few more for its requests.
const connections = 200

// Server serves a dashboard once Run is called.
type Server struct {
	server *server.Server
	// Exposed is true if other machines can reach it.
	Exposed bool
}

// Listen listens on an address, such as "127.0.0.1:0" or "localhost:8080". Port 0 picks a free port. It rejects an
// address without a host, because that would mean every address of the machine.
func Listen(ctx context.Context, address string, o Options) (*Server, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address %q: must be HOST:PORT, such as 127.0.0.1:8080, or 127.0.0.1:0 for a free port: %w",
			address, err)
	}
	if host == "" {
		return nil, fmt.Errorf("address %q: give a host, such as 127.0.0.1%s. For every address of this machine "+
			"give 0.0.0.0%s", address, address, address)
	}
	if _, err := netip.ParseAddr(host); err != nil {
		o.Hosts = append(o.Hosts, strings.ToLower(host))
	}
	s, err := server.Listen(ctx, server.Options{
		Address: address, Connections: connections, Handler: New(o), Logger: logr.Discard(),
	})
	if err != nil {
		return nil, err
	}
	return &Server{server: s, Exposed: !s.Addr().IP.IsLoopback()}, nil
}

// URL returns the page's address.
func (s *Server) URL() string {
	addr := s.server.Addr()
	if addr.IP.IsUnspecified() {
		return fmt.Sprintf("http://localhost:%d/", addr.Port)
	}
	return "http://" + addr.String() + "/"
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.server.Close() }) // Run returns its errors
	defer stop()
	err := s.server.Run()
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return nil // ctx ended
	}
	return err
}
