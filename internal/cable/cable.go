// Package cable disturbs a client's connections to the API server from within its process: watches lag, and the cable
// is unplugged. rotatest links it. Package test/rig/proxy stands between processes and breaks the network itself.
package cable

import (
	"context"
	"errors"
	"io"
	"net/http"
)

// ErrUnplugged is the error of requests after the cable was unplugged.
var ErrUnplugged = errors.New("unplugged")

// Plugged has the requests of a client get through until the context ends. Those under way then, watches included, end.
func Plugged(plugged context.Context, next http.RoundTripper) http.RoundTripper {
	return &cable{plugged, next}
}

type cable struct {
	plugged context.Context //nolint:containedctx // the state of the cable
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c *cable) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.plugged.Err() != nil {
		return nil, ErrUnplugged
	}
	ctx, cancel := context.WithCancel(req.Context())
	stop := context.AfterFunc(c.plugged, cancel)
	resp, err := c.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	resp.Body = &body{resp.Body, func() { stop(); cancel() }}
	return resp, nil
}

// WrappedRoundTripper lets client-go find what is below.
func (c *cable) WrappedRoundTripper() http.RoundTripper { return c.next }

type body struct {
	io.ReadCloser
	closed func()
}

func (b *body) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
}
