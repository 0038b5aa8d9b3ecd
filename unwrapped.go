package rota

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// sent counts the requests that a controller's reconciles send to the API server with their contexts. Their contexts
// show each of them, through whatever client it is sent, since net/http tells an httptrace.ClientTrace of it. It does
// not tell whether it is a write.
type sent struct {
	// all are those of all clients, wrapped those of clients of WrapConfig.
	all, wrapped atomic.Int64
	told         atomic.Bool
}

// hostOf returns the host and port of the API server of a config, as an httptrace.ClientTrace has them; "" if there is
// none.
func hostOf(cfg *rest.Config) string {
	if cfg == nil {
		return ""
	}
	url, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return ""
	}
	port := url.Port()
	switch {
	case port != "":
	case url.Scheme == "http":
		port = "80"
	default:
		port = "443"
	}
	return net.JoinHostPort(url.Hostname(), port)
}

// counting returns a context whose requests to the host count in n.
func counting(ctx context.Context, host string, n *atomic.Int64) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(hostPort string) {
		if hostPort == host {
			n.Add(1)
		}
	}})
}

// seen returns a context of a reconcile of this controller whose requests are counted.
func (c *Controller) seen(ctx context.Context) context.Context {
	if c.rota.host == "" {
		return ctx
	}
	return counting(ctx, c.rota.host, &c.sent.all)
}

// counted returns a request of a client of WrapConfig. If a reconcile sends it, it is counted as one. It is so before
// it is counted among all, since the trace that came last is told first.
func (r *Rota) counted(req *http.Request) *http.Request {
	by, inFlight := r.admittedFrom(req.Context())
	if !inFlight || by.controller == nil || r.host == "" {
		return req
	}
	return req.WithContext(counting(req.Context(), r.host, &by.controller.sent.wrapped))
}

// checkUnwrapped tells of a controller that sends requests through clients that were not wrapped. If it uses no other
// ones, its writes are not what a member's have to be. Otherwise these may be reads.
func (c *Controller) checkUnwrapped() {
	wrapped := c.sent.wrapped.Load()
	switch unwrapped := c.sent.all.Load() - wrapped; {
	case unwrapped <= 0 || c.rota.wroteByHand.Load():
	case wrapped == 0:
		c.fault("unwrapped client", "the clients that its workers use were not made of what rota.WrapConfig (or "+
			"WrapTransport) returns, so that their writes go on when a slot is lost, and its next owner does not wait until it "+
			"sees them: make the clients of the wrapped config, or note what they write with Rota.Wrote", "requests", unwrapped)
	case !c.sent.told.Swap(true):
		c.rota.log.Info("Some requests of reconciles go to the API server through a client that was not made of what "+
			"rota.WrapConfig (or WrapTransport) returns. That is right for reads. Writes through it go on when a slot is lost, "+
			"and its next owner does not wait until it sees them", "controller", c.name, "requests", unwrapped)
	}
}
