package writes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/gate"
)

// sending is a write under way. The API server decides it within a timeout, but the answer may take longer, such as
// where both are short of processor time. Who gives a write up does not know what became of it, and may do twice what
// cannot be repeated, such as making a Pod. So there are two limits:
//
//   - Until the write has been sent, its context ends when the timeout has passed since its start. So nothing that
//     waits for a connection is sent later than that, the repetitions of net/http included.
//   - Once it has been sent, it waits for its answer for as long as the member's deadline allows. That moves no effect
//     of it: the API server has given up by then.
//
// If the outcome stays unknown, the write can no longer take effect after settled.
type sending struct {
	start   time.Time
	timeout time.Duration   // the server's
	ctx     context.Context //nolint:containedctx // the write is the context's life
	end     context.CancelCauseFunc

	mu   sync.Mutex
	sent bool
	// cleanup ends what waits for the end of the write.
	cleanup []func() bool
}

// newSending returns a write that begins now. Its context ends with parent, or when patience has passed. It does not
// end because of a handover before the write is settled: the slot waits for the write, and the answer comes much
// sooner.
func newSending(parent context.Context, timeout, patience time.Duration) *sending {
	s := &sending{start: time.Now(), timeout: timeout}
	deadline := s.start.Add(max(timeout, patience))
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
	s.cleanup = []func() bool{
		time.AfterFunc(timeout, s.late).Stop,
		context.AfterFunc(parent, func() {
			cause := context.Cause(parent)
			if !errors.Is(cause, gate.ErrHandover) {
				s.end(cause)
				return
			}
			settled := s.settled(s.start.Add(s.timeout))
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
	if time.Since(s.start) >= s.timeout {
		s.late()
	}
}

func (s *sending) wrote(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = err == nil
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
	if latest := s.start.Add(s.timeout); now.After(latest) {
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

// text says what the write waited for in vain, why no longer, and what to do.
func (s *sending) text(req *http.Request) string {
	if s.wasSent() {
		return unansweredText(req, time.Since(s.start))
	}
	return lateText(req, s.timeout)
}

// givenUp returns the error of a write that this member has given up. It says what to do, and is a timeout.
func (s *sending) givenUp(req *http.Request, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(s.ctx), context.DeadlineExceeded) {
		err = context.DeadlineExceeded // net/http may only say that the context was canceled
	}
	return fmt.Errorf("%s: %w", s.text(req), err)
}
