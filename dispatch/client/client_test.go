package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/internal/elapsed"
	"github.com/rota-dev/rota/test/require"
)

// answerer answers requests without a network, so that tests run in a synctest bubble.
type answerer func(path string, body []byte) (status int, header http.Header, out any)

func (a answerer) RoundTrip(req *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(req.Body)
	status, header, out := a(req.URL.Path, body)
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	if status == 0 {
		return nil, errors.New("no connection")
	}
	if header == nil {
		header = http.Header{}
	}
	if p, ok := out.(wire.Problem); ok {
		header.Set("Content-Type", wire.TypeProblem)
		p.Status = status
		out = p
	}
	raw, _ := json.Marshal(out)
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(string(raw)))}, nil
}

// newTestClient returns a client whose requests are answered by a. Its clock is that of the bubble.
func newTestClient(t *testing.T, a answerer) *Client {
	t.Helper()
	c, err := New(Options{URLs: []string{"http://dispatchers"}, HTTP: &http.Client{Transport: a}})
	require.NoError(t, err)
	c.clock = elapsed.NewFrom(func() (time.Duration, bool) { return 0, false }, nil)
	return c
}

func problemFor(kind string) wire.Problem {
	return wire.Problem{Type: wire.ProblemBase + kind, Title: kind}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"no URL", Options{}, "no URLs"},
		{"a host", Options{URLs: []string{"dispatchers:8443"}}, "it must be like"},
		{"a query", Options{URLs: []string{"https://dispatchers?a=b"}}, "it must be like"},
		{"no CA", Options{URLs: []string{"https://dispatchers"}, CAFile: "testdata/none"}, "CA file"},
		{"a CA beside HTTP", Options{URLs: []string{"https://d"}, CAFile: "a", HTTP: &http.Client{}}, "CAFile must be empty"},
		{"a timeout", Options{URLs: []string{"https://d"}, HTTP: &http.Client{Timeout: 1}}, "HTTP.Timeout 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := New(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestProblemIsItsError(t *testing.T) {
	all := []error{
		ErrInvalid, ErrUnauthenticated, ErrForbidden, ErrUnknownKind, ErrEnded, ErrTooMany, ErrUnavailable,
	}
	for _, c := range []struct {
		status int
		body   any
		want   error // nil: none of them
	}{
		{400, problemFor(wire.ProblemInvalid), ErrInvalid},
		{401, problemFor(wire.ProblemUnauthenticated), ErrUnauthenticated},
		{403, problemFor(wire.ProblemForbidden), ErrForbidden},
		{404, problemFor(wire.ProblemUnknownKind), ErrUnknownKind},
		{404, problemFor(wire.ProblemNotFound), nil},
		{410, problemFor(wire.ProblemEnded), ErrEnded},
		{429, problemFor(wire.ProblemTooMany), ErrTooMany},
		{503, problemFor(wire.ProblemUnavailable), ErrUnavailable},
		{410, problemFor("of-a-later-version"), ErrEnded},
		{502, "<html>a proxy</html>", ErrUnavailable},
		{418, nil, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := newTestClient(t, func(string, []byte) (int, http.Header, any) { return c.status, nil, c.body })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for those that are tried again
			defer cancel()
			err := client.Release(ctx, &Take{token: "t"})
			var p *Problem
			if !errors.As(err, &p) || p.Status != c.status {
				t.Errorf("%d: error %v, want a Problem", c.status, err)
			}
			for _, each := range all {
				if got := errors.Is(err, each); got != (each == c.want) { //nolint:errorlint // both are sentinels
					t.Errorf("%v is %q: %t", err, each, got)
				}
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "0": 0, "-3": 0, "soon": 0, "99999999": maxRetryAfter,
		now.Add(time.Minute).Format(http.TimeFormat):  time.Minute,
		now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("Retry-After %q: %v, want %v", header, got, want)
		}
	}
}

func TestBackoff(t *testing.T) {
	var b backoff
	want := firstDelay
	for range 20 {
		least, most := b, b
		if got := least.next(errors.New("any"), 0); got != want/2 {
			t.Errorf("at least %v, want %v", got, want/2)
		}
		if got := most.next(errors.New("any"), 1); got != want {
			t.Errorf("at most %v, want %v", got, want)
		}
		b.next(errors.New("any"), 0)
		want = min(2*want, maxDelay)
	}
	busy := &Problem{RetryAfter: 4 * time.Second}
	if least, most := b.next(busy, 0), b.next(busy, 1); least != 4*time.Second || most != 5*time.Second {
		t.Errorf("from %v to %v after a Retry-After of 4 s", least, most)
	}
}

func TestRequestsAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		c := newTestClient(t, func(string, []byte) (int, http.Header, any) {
			sent++
			switch sent {
			case 1:
				return 0, nil, nil
			case 2:
				return 503, http.Header{"Retry-After": {"7"}}, problemFor(wire.ProblemUnavailable)
			}
			return 200, nil, wire.ExtendResponse{ExpiresInSeconds: 30, Draining: true}
		})
		begun := time.Now()
		take := &Take{token: "t", client: c}
		require.NoError(t, c.Extend(t.Context(), take, 0))
		if took := time.Since(begun); took < 7*time.Second || took > 10*time.Second {
			t.Errorf("took %v, with a Retry-After of 7 s", took)
		}
		if left := take.Remaining(); left != 30*time.Second || !take.Draining() {
			t.Errorf("%v remain, draining %t", left, take.Draining())
		}
	})
}

// The time counts from when the request was sent, not from its answer.
func TestDeadlineCountsFromTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClient(t, func(string, []byte) (int, http.Header, any) {
			time.Sleep(4 * time.Second)
			return 200, nil, wire.TakeResponse{Takes: []wire.Take{{Token: "t", Kind: "K", Name: "n", ExpiresInSeconds: 30}}}
		})
		takes, err := c.Take(t.Context(), wire.TakeRequest{Worker: "w", WaitSeconds: 10})
		require.NoError(t, err)
		if left := takes[0].Remaining(); left != 26*time.Second {
			t.Errorf("%v remain of 30 s, after 4 s", left)
		}
	})
}

// A machine that sleeps does not stop the time of a take.
func TestDeadlineCountsSleep(t *testing.T) {
	c := newTestClient(t, nil)
	slept := time.Duration(0)
	c.clock = elapsed.NewFrom(func() (time.Duration, bool) {
		return time.Duration(time.Now().UnixNano()) + slept, true
	}, nil)
	take, err := c.newTake(c.clock.Late(), &wire.Take{Token: "t", Kind: "K", Name: "n", ExpiresInSeconds: 30})
	require.NoError(t, err)
	slept = time.Minute
	if left := take.Remaining(); left > 0 {
		t.Errorf("%v remain of 30 s, after a sleep of a minute", left)
	}
}

func TestTokenIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		require.NoError(t, os.WriteFile(file, []byte(token), 0o600))
	}
	var accepted atomic.Value
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		if r.Header.Get("Authorization") != "Bearer "+accepted.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"dispatchers":1}`)
	}))
	defer server.Close()
	c, err := New(Options{URLs: []string{server.URL}, TokenFile: file})
	require.NoError(t, err)
	if _, err := c.token.get(""); err == nil {
		t.Error("no error without a token file")
	}
	write("one\n")
	accepted.Store("one")
	_, err = c.Stats(t.Context())
	require.NoError(t, err)
	accepted.Store("two")
	if _, err := c.Stats(t.Context()); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("error %v with an old token, want ErrUnauthenticated", err)
	}
	write("")
	if _, err := c.Stats(t.Context()); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("error %v while the file is empty, want ErrUnauthenticated", err)
	}
	write("two")
	before := requests
	if s, err := c.Stats(t.Context()); err != nil || s.Dispatchers != 1 {
		t.Errorf("error %v with a new token", err)
	}
	if requests != before+2 {
		t.Errorf("%d requests: want the one that is refused, and one with the new token", requests-before)
	}
}

// A redirect does not take the token elsewhere, and a URL that does not answer is not used again.
func TestRedirectsAndURLs(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("redirected") }))
	defer elsewhere.Close()
	status, requests := http.StatusTemporaryRedirect, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		w.Header().Set("Location", elsewhere.URL+r.URL.Path)
		w.WriteHeader(status)
	}))
	defer server.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	c, err := New(Options{URLs: []string{gone.URL, server.URL}})
	require.NoError(t, err)
	var p *Problem
	if err := c.Release(t.Context(), &Take{token: "t"}); !errors.As(err, &p) || p.Status != status {
		t.Errorf("error %v, want the redirect", err)
	}
	status = http.StatusNoContent
	for range 3 {
		require.NoError(t, c.Release(t.Context(), &Take{token: "t"}))
	}
	if requests != 4 {
		t.Errorf("%d requests to the URL that answers, want 4", requests)
	}
}

func TestTakeDoesNotPrintItsToken(t *testing.T) {
	c := newTestClient(t, nil)
	take, err := c.newTake(0, &wire.Take{Token: "secret", Kind: "Widget.example.com", Namespace: "a", Name: "b"})
	require.NoError(t, err)
	raw, err := json.Marshal(take)
	if err != nil || strings.Contains(string(raw), "secret") || take.String() != "Widget.example.com a/b" {
		t.Errorf("%s, %s, %v", take, raw, err)
	}
}
