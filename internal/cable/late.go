package cable

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// Watches applies a function to each watch's body. The function is called concurrently.
func Watches(
	next http.RoundTripper, through func(watch *http.Request, body io.ReadCloser) io.ReadCloser,
) http.RoundTripper {
	return &watches{next, through}
}

// LateWatches delays the events of a client's watches. lag is called for each watch, concurrently.
func LateWatches(next http.RoundTripper, lag func(watch *http.Request) time.Duration) http.RoundTripper {
	return Watches(next, func(w *http.Request, body io.ReadCloser) io.ReadCloser { return Late(body, lag(w)) })
}

type watches struct {
	next    http.RoundTripper
	through func(*http.Request, io.ReadCloser) io.ReadCloser
}

// RoundTrip implements http.RoundTripper.
func (w *watches) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(req)
	if err == nil && IsWatch(req) {
		resp.Body = w.through(req, resp.Body)
	}
	return resp, err
}

// IsWatch reports whether a request is a watch.
func IsWatch(req *http.Request) bool {
	watch := req.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}

// WrappedRoundTripper gives client-go access to the wrapped RoundTripper.
func (w *watches) WrappedRoundTripper() http.RoundTripper { return w.next }

// late is a body whose bytes are delayed.
type late struct {
	inner io.ReadCloser
	parts chan part
	done  chan struct{}
	once  sync.Once
	rest  []byte
}

type part struct {
	due  time.Time
	text []byte
	err  error
}

// Late returns a body whose bytes are delayed, in order. Close it: a goroutine reads ahead until then.
func Late(inner io.ReadCloser, lag time.Duration) io.ReadCloser {
	l := &late{inner: inner, parts: make(chan part, 10_000), done: make(chan struct{})}
	go func() {
		for {
			buffer := make([]byte, 32<<10)
			n, err := inner.Read(buffer)
			select {
			case l.parts <- part{time.Now().Add(lag), buffer[:n], err}:
			case <-l.done:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return l
}

// Read implements io.Reader.
func (l *late) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		select {
		case next := <-l.parts:
			select {
			case <-time.After(time.Until(next.due)):
			case <-l.done:
				return 0, io.ErrClosedPipe
			}
			if l.rest = next.text; len(l.rest) == 0 && next.err != nil {
				return 0, next.err
			}
		case <-l.done:
			return 0, io.ErrClosedPipe
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (l *late) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.inner.Close()
}
