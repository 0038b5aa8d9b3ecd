package meter

import (
	"context"
	"io"
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
// bytes are as they come, with TLS and HTTP/2, and compressed where answers are.
type wire struct {
	namespace         string
	received, watches atomic.Int64

	mu               sync.Mutex
	requests, beside map[string]int // by verb and resource
}

func (w *wire) watch(cfg *rest.Config) {
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

type reconcileKey struct{}

// Reconcile returns a context whose requests count as those of a reconcile.
func Reconcile(ctx context.Context) context.Context {
	return context.WithValue(ctx, reconcileKey{}, true)
}

// counted counts the requests and the open watches.
type counted struct {
	wire *wire
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	what := request(r, c.wire.namespace)
	c.wire.mu.Lock()
	c.wire.requests[what]++
	if r.Context().Value(reconcileKey{}) == nil {
		c.wire.beside[what]++
	}
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
	// Table stands for requests for the ConfigMaps in the operator's own namespace.
	Table = "table"
	// Leases are all Leases.
	Leases = "leases"
)

// Writing are the verbs that write.
var Writing = []string{"create", "update", "patch", "delete"}

// Resource returns the resource in a key of Counts.Requests, and Verb the verb.
func Resource(what string) string { return what[strings.IndexByte(what, ' ')+1:] }

// Verb returns the verb in a key of Counts.Requests.
func Verb(what string) string { return what[:strings.IndexByte(what, ' ')] }

// request returns the verb and the resource of a request, such as "list websites".
func request(r *http.Request, namespace string) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	skip := map[string]int{"api": 2, "apis": 3}[parts[0]] // api/v1, apis/group/v1
	if skip == 0 || len(parts) <= skip {
		return "get discovery"
	}
	parts = parts[skip:]
	own := false
	if parts[0] == "namespaces" && len(parts) > 2 {
		own = parts[1] == namespace
		parts = parts[2:]
	}
	if own && parts[0] == "configmaps" {
		parts[0] = Table
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
