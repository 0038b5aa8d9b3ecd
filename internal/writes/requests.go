package writes

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/rota-dev/rota/internal/work"
)

// Counting returns a context for a reconcile whose requests to the API server are counted in n.All. It counts requests
// of all clients, since net/http calls the httptrace.ClientTrace of a context. The trace does not show which requests
// are writes.
func (w *Writes) Counting(ctx context.Context, n *work.Requests) context.Context {
	if w.host == "" {
		return ctx
	}
	return counting(ctx, w.host, &n.All)
}

// counted returns a request that counts as one of a wrapped client if a reconcile sends it. That happens before it is
// counted among all requests, since net/http calls the latest trace first.
func (w *Writes) counted(req *http.Request, by work.Admitted) *http.Request {
	if by.Requests == nil || w.host == "" {
		return req
	}
	return req.WithContext(counting(req.Context(), w.host, &by.Requests.Wrapped))
}

// counting returns a context whose requests to the host count in n.
func counting(ctx context.Context, host string, n *atomic.Int64) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(hostPort string) {
		if hostPort == host {
			n.Add(1)
		}
	}})
}
