package footprint

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// wire counts the traffic between a process and the API server: requests, and bytes read from the connections. The
// bytes are compressed and include TLS and HTTP/2.
type wire struct {
	received, watches atomic.Int64

	mu       sync.Mutex
	requests map[string]int // by verb and resource
}

// watch makes all clients of cfg count their traffic.
func (w *wire) watch(cfg *rest.Config) {
	w.requests = map[string]int{}
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second} // client-go's
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: conn, received: &w.received}, nil
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counted{wire: w, next: next} })
}

func (w *wire) counts() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.requests)
}

type countedConn struct {
	net.Conn
	received *atomic.Int64
}

// Read implements net.Conn.
func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// counted counts the requests and the open watches.
type counted struct {
	wire *wire
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	what := request(r)
	c.wire.mu.Lock()
	c.wire.requests[what]++
	c.wire.mu.Unlock()
	resp, err := c.next.RoundTrip(r)
	if err == nil && strings.HasPrefix(what, "watch ") {
		c.wire.watches.Add(1)
		resp.Body = &watchBody{ReadCloser: resp.Body, watches: &c.wire.watches}
	}
	return resp, err
}

type watchBody struct {
	io.ReadCloser
	once    sync.Once
	watches *atomic.Int64
}

// Close implements io.Closer.
func (b *watchBody) Close() error {
	b.once.Do(func() { b.watches.Add(-1) })
	return b.ReadCloser.Close()
}

const (
	// table stands for requests for the ConfigMaps in the operator's own namespace.
	table  = "table"
	leases = "leases"
)

// resource returns the resource in a result of request.
func resource(what string) string { return what[strings.IndexByte(what, ' ')+1:] }

// request returns the verb and the resource of a request, such as "list websites".
func request(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	skip := map[string]int{"api": 2, "apis": 3}[parts[0]] // api/v1, apis/group/v1
	if skip == 0 || len(parts) <= skip {
		return "get discovery"
	}
	parts = parts[skip:]
	own := false
	if parts[0] == "namespaces" && len(parts) > 2 {
		own = parts[1] == operatorNamespace
		parts = parts[2:]
	}
	if own && parts[0] == "configmaps" {
		parts[0] = table
	}
	verb, ok := map[string]string{
		http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[r.Method]
	switch {
	case ok:
	case slices.Contains([]string{"true", "1"}, r.URL.Query().Get("watch")):
		verb = "watch"
	case len(parts) > 1:
		verb = "get"
	default:
		verb = "list"
	}
	return verb + " " + parts[0]
}
