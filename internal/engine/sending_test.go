package engine

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/slot"
)

// R2, R6: a write that was sent waits for its answer until the member's deadline, since who gives it up does not know
// what became of it. One that was not sent ends with its timeout, and so does one that would be sent again after that.
// A handover waits for it no longer than it can take effect.
func TestR06WritesWaitForTheirOutcome(t *testing.T) {
	const never = 1000 * time.Hour
	type step struct {
		after time.Duration
		do    func(*httptrace.ClientTrace)
	}
	connect := func(trace *httptrace.ClientTrace) { trace.GetConn("example.com:443") }
	wrote := func(trace *httptrace.ClientTrace) { trace.WroteRequest(httptrace.WroteRequestInfo{}) }
	for name, test := range map[string]struct {
		left             time.Duration // until the deadline
		steps            []step
		answer, handover time.Duration
		ends             time.Duration // when it has ended
		words            string        // of its error; "": there is none
		free             time.Duration // when its slot may move
	}{
		"the answer is late": {
			10 * time.Second, []step{{0, connect}, {0, wrote}}, 7 * time.Second, never, 7 * time.Second, "", 7 * time.Second,
		},
		"no answer": {
			10 * time.Second, []step{{0, connect}, {0, wrote}}, never, never,
			10 * time.Second, "got no answer within 10s", 10 * time.Second,
		},
		"no answer, and little is left": {
			1500 * time.Millisecond, []step{{0, connect}, {0, wrote}}, never, never,
			1500 * time.Millisecond, "got no answer within 1.5s", 4 * time.Second,
		},
		"no connection": {
			10 * time.Second, []step{{0, connect}}, never, never, 2 * time.Second, "found no connection", 5 * time.Second,
		},
		"it takes long to send it": {
			10 * time.Second, []step{{0, connect}, {1900 * time.Millisecond, wrote}}, 3 * time.Second, never,
			4900 * time.Millisecond, "", 4900 * time.Millisecond,
		},
		"sent again in time": {
			10 * time.Second, []step{{0, connect}, {0, wrote}, {time.Second, connect}, {0, wrote}}, 4 * time.Second, never,
			5 * time.Second, "", 5 * time.Second,
		},
		"sent again, and no connection": {
			10 * time.Second, []step{{0, connect}, {0, wrote}, {time.Second, connect}}, never, never,
			2 * time.Second, "found no connection", 5 * time.Second,
		},
		"about to be sent again too late": {
			10 * time.Second, []step{{0, connect}, {0, wrote}, {3 * time.Second, connect}}, never, never,
			3 * time.Second, "found no connection", 5 * time.Second,
		},
		"a handover, and the answer comes": {
			10 * time.Second, []step{{0, connect}, {0, wrote}}, 4 * time.Second, time.Second,
			4 * time.Second, "", 4 * time.Second,
		},
		"a handover, and no answer": {
			10 * time.Second, []step{{0, connect}, {0, wrote}}, never, time.Second,
			5 * time.Second, gate.ErrHandover.Error(), 5 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := testRota(t)
				r.gate.SetDeadline(r.now() + time.Hour)
				r.gate.Open(slot.SetOf(slot.Range{First: 3, Last: 3}), 7)
				mayWrite(r, test.left)
				parent, end := context.WithCancelCause(t.Context())
				defer end(nil)
				if test.handover != never {
					time.AfterFunc(test.handover, func() { end(gate.ErrHandover) })
				}
				start := time.Now()
				err := send(r.withSlot(parent, 3), t, r, http.MethodPost, func(req *http.Request) (*http.Response, error) {
					ctx := req.Context()
					for _, step := range test.steps {
						time.Sleep(step.after)
						step.do(httptrace.ContextClientTrace(ctx))
					}
					select {
					case <-ctx.Done():
						return nil, context.Cause(ctx)
					case <-time.After(test.answer):
						return status(http.StatusCreated), nil
					}
				})
				if took := time.Since(start); took != test.ends {
					t.Errorf("it ended after %v, want %v", took, test.ends)
				}
				if (err == nil) != (test.words == "") || err != nil && !strings.Contains(err.Error(), test.words) {
					t.Errorf("error %v, want %q", err, test.words)
				}
				if err != nil && test.handover == never && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v is not a timeout", err)
				}
				if before := time.Until(start.Add(test.free)) - 1; before > 0 {
					time.Sleep(before)
					if r.gate.InFlightIn(3) != 1 {
						t.Errorf("its slot may move before %v", test.free)
					}
				}
				time.Sleep(2 * time.Nanosecond)
				synctest.Wait()
				if r.gate.InFlightIn(3) != 0 {
					t.Errorf("its slot may not move after %v", time.Since(start))
				}
			})
		})
	}
}
