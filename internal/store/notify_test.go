package store

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/test/require"
)

// events is an API server that takes events, but fails first.
type events struct {
	mu       sync.Mutex
	failures int
	status   int
	seen     []string      // bodies
	taken    chan struct{} // closed once one is taken
}

func (e *events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, string(body))
	w.Header().Set("Content-Type", "application/json")
	if len(e.seen) <= e.failures {
		w.WriteHeader(e.status)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"kind":"Event","apiVersion":"events.k8s.io/v1","metadata":{"name":"x"}}`)
	close(e.taken)
}

func notifier(t *testing.T, e *events) *Kubernetes {
	t.Helper()
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	k, err := NewKubernetes(&rest.Config{Host: server.URL}, Options{Namespace: "operators", Name: "website"})
	require.NoError(t, err)
	return k
}

// What happened while the API server did not answer is told when it does, as of the time when it happened.
func TestNotifyAgain(t *testing.T) {
	e := &events{failures: 2, status: http.StatusInternalServerError, taken: make(chan struct{})}
	k := notifier(t, e)
	defer k.Close()
	k.Notify(t.Context(), member.Notify{Reason: "Lapsed", Warning: true, Message: "m"})
	require.Receive(t, e.taken, time.Minute, "the event was not sent again")
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.seen) != 3 || e.seen[0] != e.seen[2] {
		t.Errorf("%d attempts, want 3 with the same name and time", len(e.seen))
	}
}

// NotifyNow returns once the event is there, however often it had to be sent, or when it may wait no longer.
func TestNotifyNow(t *testing.T) {
	e := &events{failures: 1, status: http.StatusInternalServerError, taken: make(chan struct{})}
	k := notifier(t, e)
	defer k.Close()
	k.NotifyNow(t.Context(), member.Notify{Reason: "ReconcilePanicked", Warning: true, Message: "m"})
	select {
	case <-e.taken:
	default:
		t.Error("it returned before the event was created")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never := notifier(t, &events{failures: 1000, status: http.StatusInternalServerError, taken: make(chan struct{})})
	defer never.Close()
	never.NotifyNow(ctx, member.Notify{Reason: "ReconcilePanicked", Message: "m"})
}

// A store that is closed does not wait for a server that never answers well, and what is refused is not sent again.
func TestNotifyEnds(t *testing.T) {
	for name, status := range map[string]int{"failing": http.StatusInternalServerError, "forbidden": http.StatusForbidden} {
		t.Run(name, func(t *testing.T) {
			e := &events{failures: 1000, status: status, taken: make(chan struct{})}
			k := notifier(t, e)
			var reported []string // in the goroutine for which Close waits
			k.opts.Report = func(what string, _ error) { reported = append(reported, what) }
			begun := time.Now()
			k.Notify(t.Context(), member.Notify{Reason: "Lapsed", Message: "m"})
			k.Close()
			if took := time.Since(begun); took > 30*time.Second {
				t.Errorf("closed after %v", took)
			}
			if len(e.seen) != 1 {
				t.Errorf("%d attempts, want the one that was under way", len(e.seen))
			}
			if len(reported) != 1 || reported[0] != "Cannot create the event Lapsed" {
				t.Errorf("reported %q, want once that the event Lapsed cannot be created", reported)
			}
		})
	}
}
