package writes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/internal/gate"
)

// sending is a write under way. The API server decides it within a timeout, but the answer may take longer, such as
// where both are short of processor time. Who gives a write up does not know what became of it, and may do twice what
// cannot be repeated, such as making a Pod. So there are two limits:
//
//   - Until the write has been sent, its context ends when sendWithin has passed since its start. So nothing that waits
//     for a connection is sent later than that, the repetitions of net/http included.
//   - Once it has been sent, it waits for its answer for as long as the member's deadline allows. That moves no effect
//     of it: the API server has given up by then.
//
// If the outcome stays unknown, the write can no longer take effect after settled.
type sending struct {
	start time.Time
	limits
	ctx context.Context //nolint:containedctx // the write is the context's life
	end context.CancelCauseFunc

	mu   sync.Mutex
	sent bool
	// tried: a part of it may have reached the server. A transport below may have tried again since.
	tried bool
	// cleanup ends what waits for the end of the write.
	cleanup []func() bool
}

// limits are how long a write may take.
type limits struct {
	sendWithin time.Duration // until it has been sent
	timeout    time.Duration // for the server
	patience   time.Duration // until its answer has come
	long       bool          // the Lease has announced that it may take longer than WriteTimeout
}

// limits returns the limits of a write that begins now. left is the time until the member's deadline.
func (w *Writes) limits(left time.Duration, long bool) limits {
	c := &w.env.Config
	if long {
		l := limits{sendWithin: min(left, c.SendWithin()), timeout: c.LongTimeout(left), long: true}
		l.patience = l.sendWithin + l.timeout + unknownMargin
		return l
	}
	timeout := min(left, c.WriteTimeout)
	return limits{sendWithin: timeout, timeout: timeout, patience: min(left, c.RenewDeadline)}
}

// newSending returns a write that begins now. Its context ends with parent, or when patience has passed. It does not
// end because of a handover before the write is settled: the slot waits for the write, and the answer comes much
// sooner.
func newSending(parent context.Context, of limits) *sending {
	s := &sending{start: time.Now(), limits: of}
	deadline := s.start.Add(max(s.timeout, s.patience))
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
		WroteRequest: func(info httptrace.WroteRequestInfo) { s.wrote(info.Err) },
		// A server may answer before it has read all.
		GotFirstResponseByte: func() { s.wrote(nil) },
	})
	s.mu.Lock() // parent may have ended: its function runs at once
	defer s.mu.Unlock()
	s.cleanup = []func() bool{
		time.AfterFunc(s.sendWithin, s.late).Stop,
		context.AfterFunc(parent, func() {
			cause := context.Cause(parent)
			if !errors.Is(cause, gate.ErrHandover) {
				s.end(cause)
				return
			}
			settled := s.settled(s.start.Add(s.sendWithin))
			s.mu.Lock()
			defer s.mu.Unlock()
			s.cleanup = append(s.cleanup, time.AfterFunc(time.Until(settled), func() { s.end(cause) }).Stop)
		}),
	}
	return s
}

// begins notes that the request is about to be sent, perhaps again.
func (s *sending) begins() {
	s.mu.Lock()
	s.sent = false
	s.mu.Unlock()
	if time.Since(s.start) >= s.sendWithin {
		s.late()
	}
}

func (s *sending) wrote(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent, s.tried = err == nil, true
}

// neverSent reports whether no try can have reached the server. err is that of the last one.
func (s *sending) neverSent(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := err.Error()
	return !s.tried && (strings.Contains(text, "connection refused") || strings.Contains(text, "no such host"))
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

// settled is when the write can no longer take effect, if its outcome is still unknown now.
func (s *sending) settled(now time.Time) time.Time {
	if latest := s.start.Add(s.sendWithin); now.After(latest) {
		now = latest // nothing was sent after that
	}
	return now.Add(s.timeout + unknownMargin)
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

// cutByServer reports whether the API server reset the write's stream because its time was over. Its handler has
// panicked by then, so net/http says no more than INTERNAL_ERROR.
func (s *sending) cutByServer(err error) bool {
	var reset http2.StreamError
	return errors.As(err, &reset) && reset.Code == http2.ErrCodeInternal && time.Since(s.start) >= s.timeout
}

// text says what the write waited for in vain, why no longer, and what to do.
func (s *sending) text(req *http.Request) string {
	took := time.Since(s.start)
	switch {
	case !s.wasSent():
		return fmt.Sprintf("%s %s found no connection to the API server within %v: see what keeps the API server or the "+
			"way to it", req.Method, req.URL.Path, s.sendWithin.Round(time.Millisecond))
	case took >= s.patience:
		return fmt.Sprintf("%s %s was sent, and got no answer within %v: a member waits as long as its Lease allows, since "+
			"the write may have taken effect; look for it before it is repeated, and see what keeps the API server or "+
			"the way to it", req.Method, req.URL.Path, took.Round(time.Millisecond))
	}
	return s.notDone(req)
}

// notDone explains why the API server gave the write up, and what to do.
func (s *sending) notDone(req *http.Request) string {
	if s.long {
		return fmt.Sprintf("the API server or an admission webhook takes longer than %v: raise LeaseDuration "+
			"(--rota-lease-duration with Options.BindFlags), before whose end a write must end (%s %s)",
			s.timeout.Round(time.Millisecond), req.Method, req.URL.Path)
	}
	return fmt.Sprintf("the API server or an admission webhook takes longer than %v: the next write has about as long as "+
		"the Lease; to give all of them that, raise WriteTimeout (--rota-write-timeout with Options.BindFlags). Writes "+
		"like %s %s were quick before, so that the Lease had announced no longer ones", s.timeout.Round(time.Millisecond),
		req.Method, req.URL.Path)
}

// givenUp returns the error of a write that this member has given up. It says what to do, and is a timeout.
func (s *sending) givenUp(req *http.Request, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(s.ctx), context.DeadlineExceeded) {
		err = context.DeadlineExceeded // net/http may only say that the context was canceled
	}
	return fmt.Errorf("%s: %w", s.text(req), err)
}

// lateQuiet is the shortest time between two log lines about writes that time out.
const lateQuiet = time.Minute

// timedOut counts a write that timed out, and logs it from time to time.
func (w *Writes) timedOut(text string) {
	w.env.Late()
	now := int64(w.env.Now())
	last := w.toldLate.Load()
	if last != 0 && time.Duration(now-last) < lateQuiet || !w.toldLate.CompareAndSwap(last, max(1, now)) {
		return
	}
	w.env.Log.Error(nil, "A write was not done in time; whether it took effect is unknown", "member", w.env.ID(), "cause",
		text)
}

// explained returns the answer of an API server or a proxy that gave a write up, with a message that says what to do.
// For programs it stays a timeout with status 504.
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
