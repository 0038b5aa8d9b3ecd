// Package cable disturbs a client's connections to the API server from within the client's process: it delays watches
// and unplugs the client. rotatest links it. Package test/rig/proxy stands between processes and breaks the network
// itself.
package cable

import (
	"context"
	"errors"
	"io"
	"net/http"
)

// ErrUnplugged is the error of requests after the client was unplugged.
var ErrUnplugged = errors.New("unplugged")

// Plugged lets a client's requests through until the context ends. Requests under way then, including watches, end.
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

// WrappedRoundTripper gives client-go access to the wrapped RoundTripper.
func (c *cable) WrappedRoundTripper() http.RoundTripper { return c.next }

type body struct {
	io.ReadCloser
	closed func()
}

func (b *body) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
}
