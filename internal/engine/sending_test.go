package engine

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
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
			10 * time.Second, []step{{0, connect}}, never, never, 2 * time.Second, "found no connection", 2 * time.Second,
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

// A write that a slow webhook holds up fails by an error that says how to give it more time, stays a timeout for
// programs, is counted, and is logged, now and then.
func TestLateWritesSayWhatToDo(t *testing.T) {
	for name, test := range map[string]struct {
		answer  roundTripper
		timeout func(error) bool
		words   string
	}{
		"no answer": {func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }, "found no connection"},
		"the server gives up": {func(req *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusGatewayTimeout, Header: http.Header{"Content-Type": {"text/plain"}}, Request: req,
				Body: io.NopCloser(strings.NewReader("request did not complete within the allotted timeout")),
			}, nil
		}, apierrors.IsTimeout, "raise WriteTimeout"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged []string
				r := testRotaLogging(t, funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}))
				mayWrite(r, time.Hour)
				client := kubernetes.NewForConfigOrDie(&rest.Config{Host: "https://127.0.0.1:1", QPS: -1,
					Transport: r.WrapTransport(test.answer)})
				for range 3 {
					_, err := client.CoreV1().ConfigMaps("a").
						Patch(r.withSlot(t.Context(), 3), "b", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
					// What reports cut off says where, not what to do.
					if err == nil || !strings.Contains(coverage.ErrorText(err), test.words) ||
						!strings.Contains(err.Error(), "/namespaces/a/configmaps/b") || !test.timeout(err) {
						t.Errorf("error %v", err)
					}
				}
				registry := prometheus.NewRegistry()
				registry.MustRegister(r.metrics.late)
				all, err := registry.Gather()
				require.NoError(t, err)
				if n := all[0].GetMetric()[0].GetCounter().
					GetValue(); n != 3 || len(logged) != 1 || !strings.Contains(logged[0], test.words) {
					t.Errorf("%s counts %v, logged %v; want 3, once", all[0].GetName(), n, logged)
				}
				synctest.Wait()
				time.Sleep(time.Minute) // the writes count as in flight for a while
			})
		})
	}
	t.Run("the caller gives up", func(t *testing.T) {
		r := testRota(t)
		mayWrite(r, time.Hour)
		ctx, cancel := context.WithCancel(r.withSlot(t.Context(), 3))
		err := send(ctx, t, r, http.MethodPut, func(*http.Request) (*http.Response, error) {
			cancel()
			return nil,
				context.Canceled
		})
		if err == nil || strings.Contains(err.Error(), "WriteTimeout") {
			t.Errorf("error %v, want none about WriteTimeout", err)
		}
	})
}

// R6: a leaver has ended the context of a reconcile, which goes on to note what it has done. That write is sent: the
// slot waits for it.
func TestR06WritesOfCutReconcilesAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		mayWrite(r, time.Minute)
		ctx, cut := context.WithCancelCause(t.Context())
		ctx = r.withSlot(ctx, 3)
		cut(gate.ErrHandover)
		sent := false
		err := send(ctx, t, r, http.MethodPut, func(*http.Request) (*http.Response, error) {
			sent = true
			return status(http.StatusOK), nil
		})
		if !sent || err != nil {
			t.Errorf("sent: %v, error %v", sent, err)
		}
	})
}
