package engine

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/internal/writes"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func testRota(t *testing.T) *Engine { t.Helper(); return testRotaLogging(t, logr.Logger{}) }

func testRotaLogging(t *testing.T, log logr.Logger) *Engine {
	t.Helper()
	r, err := New(&rest.Config{Host: "https://127.0.0.1:1"},
		Options{Name: "website", Namespace: "operators", Identity: Identity{Pod: "web-0"}, Logger: log})
	require.NoError(t, err)
	return r
}

// testController makes a controller of a kind, as an adapter does.
func testController(t testing.TB, r *Engine, name string, kind schema.GroupKind, enqueue controllers.Enqueue,
) *controllers.Controller {
	t.Helper()
	c, err := r.newTestController(name, kind, enqueue)
	require.NoError(t, err)
	return c
}

// openSlots has a member work in slots.
func openSlots(r *Engine, set slot.Set) {
	r.share.Hold(set)
	r.gate.SetDeadline(time.Hour)
	r.gate.Open(set, 7)
}

// withSlot is a context of a reconcile of something in a slot. ctx is the one that the gate gave.
func (r *Engine) withSlot(ctx context.Context, s slot.Slot) context.Context {
	return work.Admitted{Gate: r.gate, Slot: s, Context: ctx}.In(ctx)
}

// slotsFrom returns the slot of the reconcile that a context belongs to, or none.
func slotsFrom(ctx context.Context, r *Engine) []slot.Slot {
	if a, ok := work.AdmittedBy(ctx, r.gate); ok {
		return []slot.Slot{a.Slot}
	}
	return nil
}

// mayWrite has the deadline of writes that long from now.
func mayWrite(r *Engine, left time.Duration) {
	at := r.now() + left
	r.state.SetDeadline(at, at)
}

// join has the member joined, by a table that is gone again.
func join(r *Engine) {
	r.state.See(member.Snapshot{Table: &table.Table{Members: []table.Member{{ID: r.ID()}}}})
	r.state.See(member.Snapshot{Table: &table.Table{}})
}

func send(ctx context.Context, t *testing.T, r *Engine, method string, answer roundTripper) error {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "https://example.com/api/v1/namespaces/a/configmaps/b",
		strings.NewReader("{}"))
	require.NoError(t, err)
	resp, err := r.WrapTransport(answer).RoundTrip(req)
	if resp != nil {
		_ = resp.Body.Close()
	}
	return err
}

func status(code int) *http.Response {
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(""))}
}

// R2: a write of a sharded reconcile carries a server-side timeout within the deadline, and is not sent after it.
func TestR02WritesEndBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		ctx := r.withSlot(t.Context(), 3)
		mayWrite(r, 10*time.Second)
		var timeout string
		ok := func(req *http.Request) (*http.Response, error) {
			timeout = req.URL.Query().Get("timeout")
			return status(http.StatusOK), nil
		}
		if err := send(ctx, t, r, http.MethodPut, ok); err != nil || timeout != "2000ms" {
			t.Errorf("timeout %q, error %v; want writeTimeout", timeout, err)
		}
		mayWrite(r, 1500*time.Millisecond)
		if err := send(ctx, t, r, http.MethodPut, ok); err != nil || timeout != "1500ms" {
			t.Errorf("timeout %q, error %v; want the time left to the deadline", timeout, err)
		}
		timeout = ""
		if err := send(ctx, t, r, http.MethodGet, ok); err != nil || timeout != "" {
			t.Errorf("timeout %q of a read, error %v; want none", timeout, err)
		}
		if err := send(t.Context(), t, r, http.MethodPut, ok); err != nil || timeout != "" {
			t.Errorf("timeout %q of a write that no slot is behind, error %v; want none", timeout, err)
		}
		mayWrite(r, 0)
		sent := false
		err := send(ctx, t, r, http.MethodPut, func(*http.Request) (*http.Response, error) {
			sent = true
			return status(200),
				nil
		})
		if !errors.Is(err, writes.ErrDeadline) || sent {
			t.Errorf("after the deadline: error %v, sent %v; want writes.ErrDeadline and not sent", err, sent)
		}
	})
}

// R6: a write of unknown outcome counts as in flight until it cannot take effect any more.
func TestR06UnknownOutcomeStaysInFlight(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, test := range []struct {
		name    string
		answer  roundTripper
		unknown bool
	}{
		{"success", func(*http.Request) (*http.Response, error) { return status(200), nil }, false},
		{"conflict", func(*http.Request) (*http.Response, error) { return status(409), nil }, false},
		{"server timeout", func(*http.Request) (*http.Response, error) { return status(504), nil }, true},
		{"connection lost", func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, true},
		{"client timeout", func(*http.Request) (*http.Response, error) { return nil, context.DeadlineExceeded }, true},
		{"never sent", func(*http.Request) (*http.Response, error) { return nil, refused }, false},
		{"sent, and not again", func(req *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(req.Context())
			trace.GetConn("example.com:443")
			trace.WroteRequest(httptrace.WroteRequestInfo{}) // then the connection breaks, and a transport tries again
			trace.GetConn("example.com:443")
			return nil, refused
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := testRota(t)
				mayWrite(r, time.Minute)
				const s = slot.Slot(3)
				_ = send(r.withSlot(t.Context(), s), t, r, http.MethodPut, test.answer)
				if held := r.gate.InFlightIn(s) == 1; held != test.unknown {
					t.Fatalf("in flight: %v, want %v", held, test.unknown)
				}
				if !test.unknown {
					return
				}
				time.Sleep(r.cfg.WriteTimeout)
				if r.gate.InFlightIn(s) != 1 {
					t.Error("given up at the timeout, without the margin for transit")
				}
				time.Sleep(time.Second + time.Millisecond)
				if r.gate.InFlightIn(s) != 0 {
					t.Error("still in flight when it cannot take effect any more")
				}
			})
		})
	}
}

// R2: what is a write is told by the kind of the request, not by how the objects are called.
func TestR02EveryWriteIsOne(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/namespaces/reviews/configmaps/a":                                        true,
		"/apis/example.com/v1/namespaces/a/productreviews/b":                             true,
		"/apis/web.example.com/v1/namespaces/a/websites/reviews-of-books/status":         true,
		"/api/v1/namespaces/a/serviceaccounts/b/token":                                   true,
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":                         false,
		"/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews":           false,
		"/k8s/clusters/c-1/apis/authentication.k8s.io/v1/tokenreviews":                   false,
		"/apis/authorization.k8s.io.example.com/v1/namespaces/a/subjectaccessreviews/b":  true,
		"/apis/certificates.k8s.io/v1/certificatesigningrequests/authorization.k8s.io-b": true,
	} {
		r := testRota(t)
		req := httptest.NewRequestWithContext(r.withSlot(t.Context(), 3), http.MethodPost, "https://example.com"+path,
			http.NoBody)
		resp, err := r.WrapTransport(roundTripper(func(*http.Request) (*http.Response, error) {
			return status(200),
				nil
		})).RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if refused := errors.Is(err, writes.ErrDeadline); refused != want {
			t.Errorf("POST %s after the deadline: %v, want it to be refused: %v", path, err, want)
		}
	}
}

// R6: the outcome of a reconcile that has run into its own timeout, or that is cut short because its member leaves, may
// still be written: its slot does not move before it returns. Once the slot is lost nothing is written, whatever ended
// the context first.
func TestR06OutcomesAreWritten(t *testing.T) {
	set := slot.SetOf(slot.Range{First: 3, Last: 3})
	lost := map[string]func(r *Engine, leave func()){
		"returned":     func(_ *Engine, leave func()) { leave() },
		"lost":         func(r *Engine, _ func()) { r.gate.Shut(set) },
		"past its end": func(r *Engine, _ func()) { time.Sleep(2 * time.Minute); r.gate.Expire() },
		"renewed late": func(r *Engine, _ func()) {
			time.Sleep(2 * time.Minute)
			mayWrite(r, time.Minute)
			r.gate.SetDeadline(r.now() + time.Minute)
		},
	}
	for how, end := range map[string]func(r *Engine, timeout func()){
		"timed out": func(_ *Engine, timeout func()) { timeout() },
		"cut short": func(r *Engine, _ func()) {
			r.gate.Drain(set, func(slot.Slot) bool { return false }, func(slot.Slot) {})
			r.gate.Cut(set, 0)
		},
	} {
		for then, lose := range lost {
			synctest.Test(t, func(t *testing.T) {
				r := testRota(t)
				mayWrite(r, time.Minute)
				r.gate.SetDeadline(r.now() + time.Minute)
				r.gate.Open(set, 1)
				parent, timeout := context.WithCancelCause(t.Context())
				ctx, leave, verdict := r.gate.Enter(parent, 3, gate.Key{Name: "a"}, false)
				if verdict != gate.Admitted {
					t.Fatal(verdict)
				}
				defer leave()
				end(r, func() { timeout(context.DeadlineExceeded) })
				if ctx.Err() == nil {
					t.Fatal("its context goes on")
				}
				ctx = context.WithoutCancel(r.withSlot(ctx, 3))
				sent := 0
				answer := func(*http.Request) (*http.Response, error) { sent++; return status(200), nil }
				if err := send(ctx, t, r, http.MethodPut, answer); err != nil || sent != 1 {
					t.Errorf("%s: error %v, sent %d times; want it to be sent", how, err, sent)
				}
				lose(r, leave)
				if err := send(ctx, t, r, http.MethodPut, answer); err == nil || sent != 1 {
					t.Errorf("%s, then %s: error %v, sent %d times; want it not to be sent", how, then, err, sent)
				}
			})
		}
	}
}

// What ends a write is told by its error, as without Rota.
func TestWritesEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("the caller has had enough")
		for _, test := range []struct {
			want error
			ctx  func(context.Context) (context.Context, func())
		}{
			{context.DeadlineExceeded, func(ctx context.Context) (context.Context, func()) {
				ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
				return ctx, cancel
			}},
			{cause, func(ctx context.Context) (context.Context, func()) {
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(200*time.Millisecond, func() { cancel(cause) })
				return ctx, func() { cancel(nil) }
			}},
		} {
			r := testRota(t)
			mayWrite(r, 10*time.Second)
			ctx, cancel := test.ctx(r.withSlot(t.Context(), 3))
			start := time.Now()
			err := send(ctx, t, r, http.MethodPost, func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, context.Cause(req.Context())
			})
			cancel()
			if !errors.Is(err, test.want) || time.Since(start) != 200*time.Millisecond {
				t.Errorf("after %v the error is %v, want %v", time.Since(start), err, test.want)
			}
			time.Sleep(time.Minute)
		}
	})
}

// A reconcile of one rota that uses another one's client is in none of the other's slots.
func TestAContextOfAnotherRota(t *testing.T) {
	hub, spoke := testRota(t), testRota(t)
	ctx := hub.withSlot(t.Context(), 3)
	if len(slotsFrom(ctx, hub)) != 1 || len(slotsFrom(ctx, spoke)) != 0 {
		t.Errorf("slots %v and %v, want one and none", slotsFrom(ctx, hub), slotsFrom(ctx, spoke))
	}
}

// Writes as another user are logged once for each user, and reported: a fence does not know them.
func TestImpersonatedWritesAreTold(t *testing.T) {
	r, logged := loggedRota(t)
	mayWrite(r, time.Hour)
	r.gate.SetDeadline(r.now() + time.Hour)
	r.gate.Open(slot.SetOf(slot.Range{First: 3, Last: 3}), 7)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()
	for _, user := range []string{"system:serviceaccount:team:writer", "", "system:serviceaccount:team:writer"} {
		client, err := rest.HTTPClientFor(r.WrapConfig(&rest.Config{Host: server.URL,
			Impersonate: rest.ImpersonationConfig{UserName: user}}))
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(r.withSlot(t.Context(), 3), http.MethodPost,
			server.URL+"/api/v1/namespaces/a/configmaps", strings.NewReader("{}"))
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		_ = resp.Body.Close()
	}
	logged.wants(t, 1, "writes as another user", "system:serviceaccount:team:writer")
	want := `["system:serviceaccount:team:writer"]`
	if got := r.settings()[coverage.SettingImpersonates]; got != want {
		t.Errorf("reported %s, want %s", got, want)
	}
}
