package writes

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/rota-dev/rota/internal/work"
)

// Counting returns a context of a reconcile whose requests to the API server are counted. The context shows each of
// them, through whatever client it is sent, since net/http tells an httptrace.ClientTrace of it. It does not tell
// whether it is a write.
func (w *Writes) Counting(ctx context.Context, n *work.Requests) context.Context {
	if w.host == "" {
		return ctx
	}
	return counting(ctx, w.host, &n.All)
}

// counted returns a request of a wrapped client. If a reconcile sends it, it is counted as one. It is so before it is
// counted among all, since the trace that came last is told first.
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
