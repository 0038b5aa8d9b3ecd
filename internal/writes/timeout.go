package writes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/internal/gate"
)

// sending is a write in flight by net/http.
type sending struct {
	start   time.Time
	Attempt                 // guarded by mu, except for its Limits
	ctx     context.Context //nolint:containedctx // the write lasts as long as the context
	end     context.CancelCauseFunc

	mu sync.Mutex
	// cleanup stops the timers and callbacks that may end the context.
	cleanup []func() bool
}

// newSending returns a write that begins now. Its context ends with parent, or when patience has passed. A handover
// does not end it before the write is settled: the slot waits for the write, and the answer usually comes much sooner.
func newSending(parent context.Context, of Limits) *sending {
	s := &sending{start: time.Now(), Attempt: Attempt{Limits: of}}
	deadline := s.start.Add(max(s.Timeout, s.Patience))
	if own, limited := parent.Deadline(); limited && own.Before(deadline) {
		deadline = own
	}
	ctx, end := context.WithCancelCause(context.WithoutCancel(parent))
	ctx, cancel := context.WithDeadline(ctx, deadline)
	s.end = func(cause error) {
		end(cause)
		cancel()
	}
	s.ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { s.begins() },
		GotConn:      func(httptrace.GotConnInfo) { s.connects() },
		WroteRequest: func(info httptrace.WroteRequestInfo) { s.wrote(info.Err) },
		// A server may answer before it has read all.
		GotFirstResponseByte: func() { s.wrote(nil) },
	})
	s.mu.Lock() // parent may have ended: its function runs at once
	defer s.mu.Unlock()
	s.cleanup = []func() bool{
		time.AfterFunc(s.SendWithin, s.late).Stop,
		context.AfterFunc(parent, func() {
			cause := context.Cause(parent)
			if !errors.Is(cause, gate.ErrHandover) {
				s.end(cause)
				return
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			wait := s.Settled(s.SendWithin) - s.since()
			s.cleanup = append(s.cleanup, time.AfterFunc(wait, func() { s.end(cause) }).Stop)
		}),
	}
	return s
}

func (s *sending) since() time.Duration { return time.Since(s.start) }

// settles returns for how long the write may still take effect if its outcome is unknown now.
func (s *sending) settles() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.since()
	return s.Settled(at) - at
}

func (s *sending) begins() {
	s.mu.Lock()
	late := s.Begin(s.since())
	s.mu.Unlock()
	if late {
		s.late()
	}
}

func (s *sending) connects() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Connect()
}

func (s *sending) wrote(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Wrote(s.since(), err == nil)
}

// neverSent reports whether no part of the write can have reached the server. err is the error of the last try.
func (s *sending) neverSent(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if never, known := s.NeverSent(); known {
		return never
	}
	// A transport that replaces the context hides the hooks.
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// late ends a write that was not sent in time.
func (s *sending) late() {
	if !s.wasSent() {
		s.end(context.DeadlineExceeded)
	}
}

func (s *sending) wasSent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// over ends the context.
func (s *sending) over() {
	s.mu.Lock()
	cleanup := s.cleanup
	s.mu.Unlock()
	for _, stop := range cleanup {
		stop()
	}
	s.end(context.Canceled)
}

// cutByServer reports whether the API server reset the write's stream because its timeout was over. Its handler panics
// then, so net/http only sends the code INTERNAL_ERROR.
func (s *sending) cutByServer(err error) bool {
	var reset http2.StreamError
	return errors.As(err, &reset) && reset.Code == http2.ErrCodeInternal && s.since() >= s.Timeout
}

// text explains to users why the write was given up, and what to do.
func (s *sending) text(req *http.Request) string {
	took := s.since()
	switch {
	case !s.wasSent():
		return fmt.Sprintf("%s %s found no connection to the API server within %v: see what keeps the API server or the "+
			"way to it", req.Method, req.URL.Path, s.SendWithin.Round(time.Millisecond))
	case took >= s.Patience:
		return fmt.Sprintf("%s %s was sent, and got no answer within %v: a member waits as long as its Lease allows, since "+
			"the write may have taken effect; look for it before it is repeated, and see what keeps the API server or "+
			"the way to it", req.Method, req.URL.Path, took.Round(time.Millisecond))
	}
	return s.notDone(req)
}

// notDone explains why the API server gave the write up, and what to do.
func (s *sending) notDone(req *http.Request) string {
	if s.Long {
		return fmt.Sprintf("the API server or an admission webhook takes longer than %v: raise LeaseDuration "+
			"(--rota-lease-duration with Options.BindFlags), before whose end a write must end (%s %s)",
			s.Timeout.Round(time.Millisecond), req.Method, req.URL.Path)
	}
	return fmt.Sprintf("the API server or an admission webhook takes longer than %v: the next write has about as long as "+
		"the Lease; to give all of them that, raise WriteTimeout (--rota-write-timeout with Options.BindFlags). Writes "+
		"like %s %s were quick before, so that the Lease had announced no longer ones", s.Timeout.Round(time.Millisecond),
		req.Method, req.URL.Path)
}

// givenUp returns the error of a write that this member has given up, with advice. It is a timeout.
func (s *sending) givenUp(req *http.Request, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(s.ctx), context.DeadlineExceeded) {
		err = context.DeadlineExceeded // net/http may return context.Canceled
	}
	return fmt.Errorf("%s: %w", s.text(req), err)
}

// lateQuiet is the minimum time between two log lines about writes that time out.
const lateQuiet = time.Minute

// timedOut counts a write that timed out, and logs it from time to time.
func (w *Writes) timedOut(text string) {
	w.env.Late()
	now := int64(w.env.Now())
	last := w.loggedLate.Load()
	if last != 0 && time.Duration(now-last) < lateQuiet || !w.loggedLate.CompareAndSwap(last, max(1, now)) {
		return
	}
	w.env.Log.Error(nil, "A write was not done in time; whether it took effect is unknown", "member", w.env.ID(), "cause",
		text)
}

// explained returns the answer of an API server or a proxy that gave a write up, with a message that explains what to
// do. It is still a timeout with status 504.
func explained(resp *http.Response, text string) *http.Response {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	_ = resp.Body.Close()
	answer, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code:   http.StatusGatewayTimeout,
		Reason: metav1.StatusReasonTimeout, Message: "Timeout: " + text,
	})
	if err != nil {
		answer = nil
	}
	out := *resp
	out.Header = resp.Header.Clone()
	if out.Header == nil {
		out.Header = http.Header{}
	}
	out.Header.Del("Content-Encoding")
	out.Header.Set("Content-Type", "application/json")
	out.Header.Set("Content-Length", strconv.Itoa(len(answer)))
	out.ContentLength, out.Body = int64(len(answer)), io.NopCloser(bytes.NewReader(answer))
	return &out
}

// withTimeout returns a query with that timeout. It does not encode the query anew, which would sort the parameters and
// drop those that cannot be parsed.
func withTimeout(query string, timeout time.Duration) string {
	rest := slices.DeleteFunc(strings.Split(query, "&"), func(part string) bool {
		key, _, _ := strings.Cut(part, "=")
		return key == "" || key == "timeout"
	})
	// The server parses a duration, and interprets 0 as its default of a minute.
	ms := strconv.FormatInt(max(1, timeout.Milliseconds()), 10)
	return strings.Join(append(rest, "timeout="+ms+"ms"), "&")
}
