package store

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// errNotSent cancels a request that could not be sent in time.
var errNotSent = errors.New("not sent: no connection in time")

// sending tracks the body of one write. It records whether the request may have reached a server: every write has a
// body, and no server executes a write before it has read the body.
//
// After a lost connection, net/http and x/net/http2 resend a request if they can rewind its body. They do so only if
// the server cannot have seen it (GOAWAY, REFUSED_STREAM, nothing written), but possibly much later than the first
// time. This body cannot be rewound. So each write is sent at most once, and cannot start after its window.
type sending struct {
	mu     sync.Mutex
	begun  bool
	closed bool
}

// begin reports whether the body may be sent.
func (s *sending) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.begun = true
	return true
}

// close refuses a body that has not begun. It reports whether it had.
func (s *sending) close() (begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.begun
}

// window cancels the request if it has not begun within d.
func (s *sending) window(d time.Duration, cancel context.CancelCauseFunc) *time.Timer {
	return time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.begun {
			s.closed = true
			cancel(errNotSent)
		}
	})
}

type sendingKey struct{}

// onceTransport wraps the request's body in the sending of its context. It must be the outermost transport.
type onceTransport struct{ next http.RoundTripper }

func (t onceTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	s, ok := req.Context().Value(sendingKey{}).(*sending)
	if !ok || req.Body == nil {
		return t.next.RoundTrip(req)
	}
	again := req.WithContext(req.Context())
	again.Body = &onceBody{s, req.Body}
	again.GetBody = nil
	return t.next.RoundTrip(again)
}

// WrappedRoundTripper lets k8s.io/apimachinery/pkg/util/net find the connections.
func (t onceTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

type onceBody struct {
	sending *sending
	io.ReadCloser
}

func (b *onceBody) Read(p []byte) (int, error) {
	if !b.sending.begin() {
		return 0, errNotSent
	}
	return b.ReadCloser.Read(p)
}
