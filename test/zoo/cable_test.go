package zoo_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/rota-dev/rota/test/controlplane"
)

// maxLag bounds how late a process hears what its watches bring, with SLOW=1. Each watch has a lag of its own, so that a
// process hears of a child before it hears of its owner, and of its own writes long after their answers.
const maxLag = 500 * time.Millisecond

// cable is a connection to the API server that can be unplugged, and whose watches may lag behind.
type cable struct {
	plugged context.Context // the state of the cable
	next    http.RoundTripper
}

func plugInto(plugged context.Context) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		if os.Getenv("SLOW") != "" {
			next = controlplane.LateWatches(next, func() time.Duration { return rand.N(maxLag) })
		}
		return &cable{plugged, next}
	}
}

var errUnplugged = errors.New("unplugged")

// RoundTrip implements http.RoundTripper.
func (c *cable) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.plugged.Err() != nil {
		return nil, errUnplugged
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
