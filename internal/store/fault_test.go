package store_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/store/storetest"
)

// fake is a server that misbehaves; it counts the writes that reach it.
func fake(t *testing.T, handle http.HandlerFunc) (*store.Kubernetes, *atomic.Int32) {
	var writes atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			writes.Add(1)
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		handle(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return newStore(t, &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}), &writes
}

func newStore(t *testing.T, config *rest.Config) *store.Kubernetes {
	s, err := store.NewKubernetes(config, store.Options{Namespace: "ns", Name: "web"})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func gateway(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", code) }
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d}`, code)
	}
}

// TestOutcomes: rule R6, an outcome is definite only if it is, and nothing is sent twice.
func TestOutcomes(t *testing.T) {
	for _, test := range []struct {
		name   string
		handle http.HandlerFunc
		want   member.Outcome
	}{
		{"400", status(400), member.OutcomeFailed},
		{"401", status(401), member.OutcomeFailed},
		{"403", status(403), member.OutcomeFailed},
		{"404", status(404), member.OutcomeMissing},
		{"408", status(408), member.OutcomeUnknown},
		{"409", status(409), member.OutcomeConflict},
		{"422", status(422), member.OutcomeFailed},
		{"429", status(429), member.OutcomeFailed},
		{"500", status(500), member.OutcomeUnknown},
		{"502", status(502), member.OutcomeUnknown},
		{"503", status(503), member.OutcomeUnknown},
		{"504", status(504), member.OutcomeUnknown},
		{"404 of a gateway", gateway(404), member.OutcomeFailed},
		{"409 of a gateway", gateway(409), member.OutcomeUnknown},
		{"429 of a gateway", gateway(429), member.OutcomeFailed},
		{"502 of a gateway", gateway(502), member.OutcomeUnknown},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, member.OutcomeUnknown},
		{"200 without an object", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":`))
		}, member.OutcomeUnknown},
		{"connection lost", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, member.OutcomeUnknown},
		{"hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, member.OutcomeUnknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, writes := fake(t, test.handle)
			timeout := time.Minute // a quarter of it is for the connection, which takes a while on a busy machine
			if test.name == "hangs" {
				timeout = 5 * time.Second
			}
			_, o, err := s.SwapTable(t.Context(), storetest.Table(1), "uid", "1", timeout)
			if o != test.want || err == nil {
				t.Errorf("outcome %v, error %v; want outcome %v", o, err, test.want)
			}
			if n := writes.Load(); n != 1 {
				t.Errorf("sent %d times", n)
			}
		})
	}
}

// TestNotSent: what did not leave the process is definite.
func TestNotSent(t *testing.T) {
	for name, dial := range map[string]http.RoundTripper{
		"refused": roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }),
		"no connection in time": roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}),
		"connection after the window": roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			_, err := r.Body.Read(make([]byte, 1))
			return nil, err
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, &rest.Config{Host: "http://127.0.0.1:1", Transport: dial})
			_, o, err := s.CreateTable(t.Context(), storetest.Table(1), 200*time.Millisecond)
			if o != member.OutcomeFailed || err == nil {
				t.Errorf("outcome %v, error %v; want %v", o, err, member.OutcomeFailed)
			}
		})
	}
	t.Run("refused by the network", func(t *testing.T) {
		s := newStore(t, &rest.Config{Host: "http://127.0.0.1:1"})
		if _, o, err := s.CreateTable(t.Context(), storetest.Table(1), time.Minute); o != member.OutcomeFailed || err == nil {
			t.Errorf("outcome %v, error %v; want %v", o, err, member.OutcomeFailed)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestNotReplayable: net/http sends a request again, later, only where it can rewind the body.
func TestNotReplayable(t *testing.T) {
	s := newStore(t, &rest.Config{Host: "http://127.0.0.1:1", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Body == nil || r.Body == http.NoBody || r.GetBody != nil {
			t.Errorf("%s %s can be sent again", r.Method, r.URL)
		}
		return nil, errors.New("connection refused")
	})})
	for _, write := range writes(t, s) {
		write()
	}
}

// writes are all conditional and unconditional writes, by name.
func writes(t *testing.T, s store.Store) map[string]func() {
	ctx, lease := t.Context(), member.Lease{ID: "a", UID: "1", Version: "1"}
	return map[string]func(){
		"CreateTable": func() { _, _, _ = s.CreateTable(ctx, storetest.Table(1), 2*time.Second) },
		"SwapTable":   func() { _, _, _ = s.SwapTable(ctx, storetest.Table(1), "1", "1", 2*time.Second) },
		"CreateLease": func() { _, _, _ = s.CreateLease(ctx, lease, 2*time.Second) },
		"RenewLease":  func() { _, _, _ = s.RenewLease(ctx, lease, 2*time.Second) },
		"DeleteLease": func() { _, _ = s.DeleteLease(ctx, "a", "1", "1", 2*time.Second) },
	}
}

// TestTimeoutParameter: rule R2, every write limits the server, by less than the time it was given.
func TestTimeoutParameter(t *testing.T) {
	queries := make(chan url.Values, 10)
	s, _ := fake(t, func(w http.ResponseWriter, r *http.Request) {
		queries <- r.URL.Query()
		w.WriteHeader(http.StatusInternalServerError)
	})
	for name, write := range writes(t, s) {
		begun := time.Now()
		write()
		took := time.Since(begun) // the timeout is less by what had passed when the request was sent
		got, err := time.ParseDuration((<-queries).Get("timeout"))
		if most := 1500 * time.Millisecond; err != nil || got > most || got < most-took-time.Millisecond {
			t.Errorf("%s: timeout=%v (%v), want 1.5 s, less by at most %v", name, got, err, took)
		}
	}
}

// losesCreation is a server with one Lease, whose creation it does not answer. It fails the requests that failing says.
func losesCreation(t *testing.T, failing func(*http.Request) bool) *store.Kubernetes {
	var there *coordinationv1.Lease
	s, _ := fake(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case failing(r):
			status(http.StatusInternalServerError)(w, r)
			return
		case r.Method == http.MethodPost && there != nil:
			status(http.StatusConflict)(w, r)
			return
		case r.Method == http.MethodPost:
			there = read(t, r)
			there.UID, there.ResourceVersion = "1", "1"
			panic(http.ErrAbortHandler)
		case r.Method == http.MethodPut:
			if there = read(t, r); there.UID != "1" || there.ResourceVersion != "1" {
				t.Errorf("the renewal is of %s at %s", there.UID, there.ResourceVersion)
			}
			there.ResourceVersion = "2"
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(there)
	})
	return s
}

// A Lease whose creation was not answered is renewed by the next try, and another process's is not.
func TestLeaseOfALostAnswer(t *testing.T) {
	s := losesCreation(t, func(*http.Request) bool { return false })
	if _, o, _ := s.CreateLease(t.Context(), member.Lease{ID: "a"}, time.Minute); o != member.OutcomeUnknown {
		t.Errorf("without an answer: %v", o)
	}
	l, o, err := s.CreateLease(t.Context(), member.Lease{ID: "a"}, time.Minute)
	if o != member.OutcomeDone || l.UID != "1" || l.Version != "2" {
		t.Errorf("again: %+v, %v, %v", l, o, err)
	}
	if l, o, err := s.CreateLease(t.Context(), member.Lease{ID: "a"}, time.Minute); o != member.OutcomeConflict {
		t.Errorf("of another one: %+v, %v, %v", l, o, err)
	}
}

// The creation's answer is lost, and the second try's read or renewal fails. The third one renews the Lease.
func TestLeaseOfALostAnswerAndAFailure(t *testing.T) {
	for _, failing := range []string{http.MethodPut, http.MethodGet} {
		t.Run(failing, func(t *testing.T) {
			try := 1
			s := losesCreation(t, func(r *http.Request) bool { return r.Method == failing && try == 2 })
			for ; try <= 3; try++ {
				_, o, err := s.CreateLease(t.Context(), member.Lease{ID: "a"}, time.Minute)
				if o == member.OutcomeConflict || try == 3 && o != member.OutcomeDone {
					t.Errorf("try %d: %v, %v", try, o, err)
				}
			}
		})
	}
}

// Answers come after three fifths of a renewal's time, and writes take effect although the client has given up. A
// renewal after one that had less time succeeds in the end.
func TestRenewalsOfSlowAnswers(t *testing.T) {
	var mu sync.Mutex
	there := &coordinationv1.Lease{}
	rv := 0
	var slow time.Duration
	s, _ := fake(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		conflict := false
		if r.Method != http.MethodGet {
			l := read(t, r)
			if conflict = rv > 0 && l.ResourceVersion != there.ResourceVersion; !conflict {
				rv++
				there = l
				there.UID, there.ResourceVersion = "1", strconv.Itoa(rv)
			}
		}
		out := there.DeepCopy()
		mu.Unlock()
		time.Sleep(slow)
		if conflict {
			status(http.StatusConflict)(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out)
	})
	mine, o, err := s.CreateLease(t.Context(), member.Lease{ID: "a"}, time.Minute)
	if o != member.OutcomeDone {
		t.Fatal(o, err)
	}
	slow = 300 * time.Millisecond
	timeout := 200 * time.Millisecond
	for try := 1; try <= 12; try++ {
		_, o, _ := s.RenewLease(t.Context(), mine, timeout)
		if o == member.OutcomeDone {
			return
		}
		timeout = 500 * time.Millisecond
	}
	t.Error("12 renewals have failed")
}

// read reads the Lease in a request.
func read(t *testing.T, r *http.Request) *coordinationv1.Lease {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	obj, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), body)
	require.NoError(t, err)
	lease := obj.(*coordinationv1.Lease)
	lease.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	return lease
}

// TestDeadConnection: after a call without answer the next one has a connection of its own; HTTP/2 would keep using the
// dead one for up to 45 s, three leases long.
func TestDeadConnection(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("%s, want HTTP/2", r.Proto)
		}
		status(http.StatusConflict)(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	var conns []*deadConn
	s := newStore(t, &rest.Config{
		Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			conns = append(conns, &deadConn{Conn: conn})
			return conns[len(conns)-1], err
		},
	})
	for i, call := range []struct {
		limit time.Duration
		want  member.Outcome
	}{
		{time.Minute, member.OutcomeConflict}, // opens the connection
		{time.Second, member.OutcomeUnknown},
		{time.Minute, member.OutcomeConflict}, // opens another
	} {
		if _, o, err := s.CreateTable(t.Context(), storetest.Table(1), call.limit); o != call.want {
			t.Fatalf("call %d: outcome %v, error %v; want %v", i, o, err, call.want)
		}
		conns[0].dead.Store(true)
	}
}

// deadConn is one whose peer is gone without a word, once dead.
type deadConn struct {
	net.Conn
	dead atomic.Bool
}

func (c *deadConn) Write(p []byte) (int, error) {
	if c.dead.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// TestGone: 410 on a watch leads to a list at once, and to the current state.
func TestGone(t *testing.T) {
	var lists, watches atomic.Int32
	s, _ := fake(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		query := r.URL.Query()
		if query.Get("fieldSelector") != "metadata.name=web" {
			t.Errorf("query %v", query)
		}
		if query.Get("watch") == "" {
			lists.Add(1)
			_, _ = w.Write([]byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`))
			return
		}
		event := `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`
		switch watches.Add(1) {
		case 1: // as an event
		case 2: // as a status
			w.WriteHeader(http.StatusGone)
			event = strings.TrimSuffix(strings.TrimPrefix(event, `{"type":"ERROR","object":`), "}")
		default:
			out := bufio.NewWriter(w)
			_, _ = out.WriteString(`{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"9"}}}`)
			_ = out.Flush()
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = w.Write([]byte(event))
	})
	ctx, cancel := context.WithCancel(t.Context())
	emitted := 0
	_ = s.WatchTable(ctx, func(got member.Snapshot, listed bool) {
		if !got.Missing() || got.Version != "7" || !listed {
			t.Errorf("emitted %+v, listed %v; want a missing table at version 7, listed", got, listed)
		}
		if emitted++; emitted == 3 {
			cancel()
		}
	})
	if lists.Load() != 3 || watches.Load() != 2 {
		t.Errorf("%d lists, %d watches; want 3 and 2", lists.Load(), watches.Load())
	}
}

// TestGatewayKnowsNoObjects: a 404 that is not the API server's is no missing table and no lost Lease.
func TestGatewayKnowsNoObjects(t *testing.T) {
	s, _ := fake(t, gateway(404))
	if got, err := s.ReadTable(t.Context()); err == nil {
		t.Errorf("read %+v, want an error", got)
	}
	if o, err := s.DeleteLease(t.Context(), "a", "", "", time.Second); o != member.OutcomeFailed {
		t.Errorf("outcome %v, error %v; want %v", o, err, member.OutcomeFailed)
	}
	_, o, err := s.RenewLease(t.Context(), member.Lease{ID: "a", UID: "1", Version: "1"}, time.Second)
	if o != member.OutcomeFailed {
		t.Errorf("outcome %v, error %v; want %v", o, err, member.OutcomeFailed)
	}
}

func TestNewKubernetesRefuses(t *testing.T) {
	for _, opts := range []store.Options{{Namespace: "ns"}, {Name: "web"}, {Namespace: "ns", Name: "we.b"}, {Namespace: "ns", Name: "Web"}} {
		if _, err := store.NewKubernetes(&rest.Config{}, opts); err == nil {
			t.Errorf("%+v: no error", opts)
		}
	}
}

func (roundTripper) CloseIdleConnections() {}
