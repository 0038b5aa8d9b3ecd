package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/test/require"
)

// TestTooManyKeys: what a worker cannot work on now is released, and not kept waiting. By a stream it may come if the
// answer to a credit was lost.
func TestTooManyKeys(t *testing.T) {
	for _, stream := range []bool{false, true} {
		released := make(chan string, 10)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, b := takeFor("a", "1"), takeFor("b", "2")
			send := func(v any) {
				_ = json.NewEncoder(w).Encode(v)
				w.(http.Flusher).Flush()
			}
			body, _ := io.ReadAll(r.Body)
			switch r.URL.Path {
			case wire.PathTake:
				send(wire.TakeResponse{Takes: []wire.Take{a, b}})
			case wire.PathStream:
				send(wire.StreamEvent{Stream: "s"})
				send(wire.StreamEvent{Take: &a})
				send(wire.StreamEvent{Take: &b})
				<-r.Context().Done()
			case wire.PathRelease:
				var in wire.ReleaseRequest
				_ = json.Unmarshal(body, &in)
				released <- in.Token
				w.WriteHeader(http.StatusNoContent)
			default:
				w.WriteHeader(http.StatusNoContent)
			}
		}))
		c, err := New(Options{URLs: []string{server.URL}})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error)
		go func() {
			over <- Run(ctx, Worker{Client: c, Stream: stream}, func(context.Context, *Take) (Result, error) {
				<-ctx.Done() // it is busy for the rest of the test
				return Result{}, nil
			})
		}()
		token := require.Receive(t, released, 10*time.Second, "stream %t: nothing was released", stream)
		if token != "2" {
			t.Errorf("stream %t: take %s was released, want the second", stream, token)
		}
		stop()
		require.NoError(t, <-over)
		server.Close()
	}
}

// TestStreamRefuses: a stream has to begin with its name, and its lines must have an end.
func TestStreamRefuses(t *testing.T) {
	for _, c := range []struct{ name, lines, want string }{
		{"no name", `{"take":{"token":"t","kind":"K","name":"n"}}` + "\n", "does not begin with its name"},
		{"no JSON", "hello\n", "read a line"},
		{"no end", strings.Repeat(" ", maxLine+1), "longer than"},
		{"nothing", "", "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, c.lines)
			}))
			defer server.Close()
			client, err := New(Options{URLs: []string{server.URL}})
			require.NoError(t, err)
			if _, err := client.Stream(t.Context(), wire.StreamRequest{}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestStreamsAreReplaced: the times of takes count from when their stream was opened, so that it must not be old.
func TestStreamsAreReplaced(t *testing.T) {
	opened := make(chan int, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in wire.StreamRequest
		_ = json.NewDecoder(r.Body).Decode(&in)
		_ = json.NewEncoder(w).Encode(wire.StreamEvent{Stream: "s"})
		w.(http.Flusher).Flush()
		opened <- in.Credit
		<-r.Context().Done()
	}))
	defer server.Close()
	c, err := New(Options{URLs: []string{server.URL}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	r := &running{
		Worker: Worker{Client: c, Concurrency: 3}, free: make(chan struct{}, 3), stopping: ctx,
		streamAge: 10 * time.Millisecond,
	}
	r.give(3)
	over := make(chan struct{})
	go func() { defer close(over); r.stream(ctx) }()
	for range 3 {
		credit := require.Receive(t, opened, 10*time.Second, "no other stream was opened")
		if credit != 3 {
			t.Errorf("a stream with credit for %d, want 3", credit)
		}
	}
	stop()
	<-over
	if len(r.free) != 3 {
		t.Errorf("%d keys could be worked on in the end, want 3", len(r.free))
	}
}
