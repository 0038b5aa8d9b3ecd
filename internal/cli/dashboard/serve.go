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

// connections is how many connections there may be at a time: each open page has one, and a few more for its requests.
const connections = 200

// Server serves a dashboard once Run is called.
type Server struct {
	server *server.Server
	// Exposed says that other machines can reach it.
	Exposed bool
}

// Listen opens the address, as "127.0.0.1:0" or "localhost:8080". Port 0 is a free port. An address without a host is
// refused, because it would be every address of the machine.
func Listen(ctx context.Context, address string, o Options) (*Server, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address %q: must be HOST:PORT, such as 127.0.0.1:8080, or 127.0.0.1:0 for a free port: %w",
			address, err)
	}
	if host == "" {
		return nil, fmt.Errorf("address %q: name the host, such as 127.0.0.1%s. For every address of this machine "+
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

// URL is where the page is.
func (s *Server) URL() string {
	addr := s.server.Addr()
	if addr.IP.IsUnspecified() {
		return fmt.Sprintf("http://localhost:%d/", addr.Port)
	}
	return "http://" + addr.String() + "/"
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.server.Close() }) // Run reports the end
	defer stop()
	err := s.server.Run()
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return nil // it was told to end
	}
	return err
}
