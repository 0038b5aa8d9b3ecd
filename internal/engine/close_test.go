package engine

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/protocol/member"
)

type connKey struct{}

// A process that ends its member, and goes on, keeps no connections of it.
func TestRunClosesItsStore(t *testing.T) {
	var told, closed atomic.Pointer[net.Conn] // the connection by which an event came, and that one once it is closed
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.HasSuffix(req.URL.Path, "/events") {
			http.NotFound(w, req)
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		conn := req.Context().Value(connKey{}).(net.Conn)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind":"Event","apiVersion":"events.k8s.io/v1","metadata":{"name":"x"}}`)
		told.Store(&conn)
	}))
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn)
	}
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if by := told.Load(); state == http.StateClosed && by != nil && *by == conn {
			closed.Store(&conn)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	r, err := New(&rest.Config{Host: server.URL},
		Options{Name: "website", Namespace: "operators", Identity: Identity{Pod: "web-0"}})
	noError(t, err)
	r.store.Notify(t.Context(), member.Notify{Reason: "Lapsed", Message: "m"})
	until(t, "the event is sent", func() bool { return told.Load() != nil })
	if closed.Load() != nil {
		t.Fatal("the connection was closed before Run")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	noError(t, r.Run(ctx))
	until(t, "the connection is closed", func() bool { return closed.Load() != nil })
}
