package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

// Outcomes of requests that a Forwarder got, for metrics.
const (
	OutcomeServed    = "served"    // by this member
	OutcomeForwarded = "forwarded" // to the owner, which answered
	OutcomeUnowned   = "unowned"   // no member could serve it for Patience
	OutcomeBroken    = "broken"    // the connection to the owner broke, which may have served it
)

// Place is where a request has to be served.
type Place struct {
	// Here is true if this process serves it.
	Here bool
	// Member is the ID of the owner, if this is another member. It is empty while the object has no owner.
	Member string
}

// ForwarderEnv is the environment of a Forwarder. Its functions may be called concurrently and must not block.
type ForwarderEnv struct {
	// Route identifies the handler on all members.
	Route string
	// Next serves the requests that belong here.
	Next http.Handler
	// Find returns where a request belongs now.
	Find   func(*http.Request) Place
	Client *Client
	// Gone reports whether the table does not name a member any more.
	Gone func(member string) bool
	// Patience is how long a request waits for an owner.
	Patience time.Duration
	// Count is called with the outcome of each request.
	Count func(outcome string)
	Log   logr.Logger
}

// Forwarder is a handler that serves what belongs here and forwards the rest to its owner.
type Forwarder struct{ env ForwarderEnv }

// maxReplay is the size of the largest body, in bytes, that is kept to be sent again.
const maxReplay = 1 << 20

// Pauses between attempts.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = 200 * time.Millisecond
)

// NewForwarder returns a forwarder.
func NewForwarder(env ForwarderEnv) *Forwarder { return &Forwarder{env} }

// rewrite has the owner's handler see what it would see here: the proxy has removed these headers.
func rewrite(r *httputil.ProxyRequest) {
	r.Out.Host, r.Out.URL.RawQuery = r.In.Host, r.In.URL.RawQuery
	r.SetXForwarded()
	for _, name := range []string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values := r.In.Header[name]; len(values) > 0 {
			r.Out.Header[name] = slices.Clone(values)
		}
	}
	if before := strings.Join(r.In.Header["X-Forwarded-For"], ", "); before != "" {
		r.Out.Header.Set("X-Forwarded-For", before+", "+r.Out.Header.Get("X-Forwarded-For"))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// ServeHTTP implements http.Handler.
func (f *Forwarder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var body *replay
	var last error
	began, pause := time.Now(), firstPause
	for {
		place := f.env.Find(req)
		switch {
		case place.Here:
			f.env.Count(OutcomeServed)
			if body != nil {
				req = body.request(req)
			}
			f.env.Next.ServeHTTP(w, req)
			return
		case place.Member != "":
			if body == nil {
				var err error
				if body, err = newReplay(req.Body); err != nil {
					f.env.Count(OutcomeBroken)
					status := http.StatusBadRequest
					if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
						status = http.StatusRequestEntityTooLarge
					}
					http.Error(w, "cannot read the request: "+err.Error(), status)
					return
				}
			}
			last = f.try(w, body.request(req), place.Member)
			if last == nil {
				f.env.Count(OutcomeForwarded)
				return
			}
			if !errors.Is(last, ErrNotServed) {
				f.env.Count(OutcomeBroken)
				http.Error(w, fmt.Sprintf("the request was sent to its owner %s, and its answer did not come: %v", place.Member,
					last), http.StatusBadGateway)
				return
			}
			if body.once {
				f.unowned(w, last)
				return
			}
		}
		if time.Since(began) >= f.env.Patience {
			f.unowned(w, last)
			return
		}
		select {
		case <-time.After(pause):
			pause = min(pause*3/2, maxPause)
		case <-req.Context().Done():
			f.env.Count(OutcomeUnowned)
			return
		}
	}
}

// send sends a request to its owner, and waits for the header of the answer while the table names the owner. Members
// that leave have a moment to answer.
func (f *Forwarder) send(req *http.Request, member string) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	answered := make(chan struct{})
	go func() {
		tick := time.NewTicker(maxPause)
		defer tick.Stop()
		for since := time.Now(); ; {
			select {
			case <-tick.C:
				if !f.env.Gone(member) {
					since = time.Now()
				} else if time.Since(since) > endTime+maxPause {
					cancel(errOwnerGone)
					return
				}
			case <-answered:
				return
			}
		}
	}()
	resp, err := f.env.Client.Send(req.WithContext(ctx), member, f.env.Route)
	close(answered)
	if err != nil {
		if errors.Is(context.Cause(ctx), errOwnerGone) {
			err = errOwnerGone
		}
		cancel(nil)
		return nil, err
	}
	if rest, ok := resp.Body.(io.ReadWriteCloser); ok { // of another protocol, such as websockets
		resp.Body = struct {
			io.ReadWriter
			io.Closer
		}{rest, closer{rest, cancel}}
	} else {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{resp.Body, closer{resp.Body, cancel}}
	}
	return resp, nil
}

// errOwnerGone is the error of a request whose owner has left the table without an answer.
var errOwnerGone = errors.New("the owner has left the rota, or was expelled")

// closer closes a body, and then ends the context of its request.
type closer struct {
	io.Closer
	cancel context.CancelCauseFunc
}

func (c closer) Close() error {
	defer c.cancel(nil)
	return c.Closer.Close()
}

// try forwards a request.
func (f *Forwarder) try(w http.ResponseWriter, req *http.Request, member string) (failed error) {
	proxy := httputil.ReverseProxy{
		Rewrite: rewrite, FlushInterval: -1,
		Transport:    roundTripper(func(req *http.Request) (*http.Response, error) { return f.send(req, member) }),
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
	}
	proxy.ServeHTTP(w, req)
	return failed
}

// unowned answers a request that no member could serve.
func (f *Forwarder) unowned(w http.ResponseWriter, last error) {
	f.env.Count(OutcomeUnowned)
	why := "the object's slot has no owner at the moment; try again"
	if last != nil {
		why += ": " + last.Error()
	}
	f.env.Log.V(1).Info("Request was not served", "handler", f.env.Route, "cause", why)
	w.Header().Set("Retry-After", "1")
	http.Error(w, why, http.StatusServiceUnavailable)
}

// Peers returns the handler for requests that other members forward: it serves what belongs here and refuses the rest.
func (f *Forwarder) Peers() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !f.env.Find(req).Here {
			Refuse(w, "it does not own the object, or not yet")
			return
		}
		f.env.Next.ServeHTTP(w, req)
	})
}

// replay is a body that can be sent several times.
type replay struct {
	start []byte
	rest  io.ReadCloser
	// once is true if the body is too large to be sent again.
	once bool
}

func newReplay(body io.ReadCloser) (*replay, error) {
	if body == nil || body == http.NoBody {
		return &replay{}, nil
	}
	start, err := io.ReadAll(io.LimitReader(body, maxReplay+1))
	return &replay{start: start, rest: body, once: len(start) > maxReplay}, err
}

// request returns the request with the body from its start.
func (r *replay) request(req *http.Request) *http.Request {
	out := *req
	switch {
	case r.once:
		out.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(r.start), r.rest), r.rest}
	case len(r.start) == 0:
		out.Body, out.ContentLength = http.NoBody, 0
	default:
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.start)), nil }
		out.Body, _ = out.GetBody()
		out.ContentLength = int64(len(r.start))
	}
	return &out
}
