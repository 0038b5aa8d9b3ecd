package writes

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/rota-dev/rota/test/require"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Only a write that got no connection was never sent. Each case fails against a real server of net/http, by HTTP/1, by
// the HTTP/2 of net/http, and by the HTTP/2 that client-go sets up.
func TestNeverSent(t *testing.T) {
	for name, test := range map[string]struct {
		major int
		setUp func(*http.Transport) error
	}{
		"HTTP/1": {1, func(tr *http.Transport) error {
			tr.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
			return nil
		}},
		"HTTP/2 of net/http": {2, func(tr *http.Transport) error {
			tr.ForceAttemptHTTP2 = true
			return nil
		}},
		"HTTP/2 of golang.org/x/net": {2, http2.ConfigureTransport},
	} {
		t.Run(name, func(t *testing.T) { testNeverSent(t, test.major, test.setUp) })
	}
}

func testNeverSent(t *testing.T, major int, setUp func(*http.Transport) error) {
	received := make(chan struct{}, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		received <- struct{}{}
		if r.ProtoMajor != major {
			t.Errorf("a request came by %s", r.Proto)
		}
		_, _ = io.Copy(io.Discard, r.Body) // only then HTTP/1 notices that the client has gone
		if r.URL.Path == "/break" {
			panic(http.ErrAbortHandler) // resets the stream, or closes the connection
		}
		<-r.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	refusing := strings.Replace(refusingURL(t), "http:", "https:", 1)

	transport := func(change func(*http.Transport)) *http.Transport {
		tr := &http.Transport{TLSClientConfig: server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()}
		tr.TLSClientConfig.NextProtos = nil
		if change != nil {
			change(tr)
		}
		require.NoError(t, setUp(tr))
		t.Cleanup(tr.CloseIdleConnections)
		return tr
	}
	plain := transport(nil)
	through := func(proxy string) *http.Transport {
		at, err := url.Parse(proxy)
		require.NoError(t, err)
		return transport(func(tr *http.Transport) { tr.Proxy = http.ProxyURL(at) })
	}
	unwilling := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(unwilling.Close)
	hidden := func(tr http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			return tr.RoundTrip(r.WithContext(ctx))
		})
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no network")
	}}
	for _, test := range []struct {
		name      string
		transport http.RoundTripper
		url       string
		never     bool
	}{
		{"refused", plain, refusing, true},
		{"no such host", transport(func(tr *http.Transport) { tr.DialContext = (&net.Dialer{Resolver: resolver}).DialContext }),
			"https://api.invalid", true},
		{"no certificate that the client trusts", transport(func(tr *http.Transport) { tr.TLSClientConfig.RootCAs = nil }),
			server.URL, true},
		{"refused by the proxy's host", through(refusingURL(t)), server.URL, true},
		{"refused by the proxy", through(unwilling.URL), server.URL, true},
		{"dialing takes too long", transport(func(tr *http.Transport) {
			tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}), server.URL, true},
		{"refused, without trace hooks", hidden(plain), refusing, true},
		{"the server breaks off", plain, server.URL + "/break", false},
		{"no answer in time", plain, server.URL, false},
		{"the server breaks off, without trace hooks", hidden(plain), server.URL + "/break", false},
		{"no answer in time, without trace hooks", hidden(plain), server.URL, false},
		{"sent, then refused", roundTripper(func(r *http.Request) (*http.Response, error) {
			first := r.Clone(r.Context())
			first.URL.Path = "/break"
			if _, err := plain.RoundTrip(first); err == nil {
				t.Error("the first try has an answer")
			}
			r.URL.Host = strings.TrimPrefix(refusing, "https://")
			return plain.RoundTrip(r)
		}), server.URL, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			for len(received) > 0 {
				<-received
			}
			within := 500 * time.Millisecond
			s := newSending(t.Context(), Limits{SendWithin: within, Timeout: within, Patience: within})
			defer s.over()
			req, err := http.NewRequestWithContext(s.ctx, http.MethodPost, test.url, strings.NewReader("{}"))
			require.NoError(t, err)
			resp, err := test.transport.RoundTrip(req)
			if err == nil {
				_ = resp.Body.Close()
				t.Fatalf("it has an answer: %s", resp.Status)
			}
			if got := s.neverSent(err); got != test.never {
				t.Errorf("never sent: %t, want %t, with error %v", got, test.never, err)
			}
			if n := len(received); test.never && n > 0 {
				t.Errorf("the server received %d requests", n)
			}
		})
	}
}

// A write that waits for one of a limited number of connections is sent to none of them once its time is over.
func TestNeverSentForWantOfAConnection(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	tr := &http.Transport{MaxConnsPerHost: 1}
	defer tr.CloseIdleConnections()
	post := func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, http.NoBody)
		require.NoError(t, err)
		resp, err := tr.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := newSending(ctx, Limits{SendWithin: time.Minute, Timeout: time.Minute, Patience: time.Minute})
	done := make(chan error, 1)
	go func() { done <- post(first.ctx) }()
	for !first.wasSent() {
		time.Sleep(time.Millisecond)
	}
	second := newSending(t.Context(), Limits{SendWithin: 100 * time.Millisecond, Timeout: time.Second, Patience: time.Second})
	if err := post(second.ctx); err == nil || !second.neverSent(err) {
		t.Errorf("error %v, want one of a write that was never sent", err)
	}
	second.over()
	cancel()
	if err := <-done; err == nil || first.neverSent(err) {
		t.Errorf("error %v, want one of a write that was sent", err)
	}
	first.over()
}

// refusingURL returns a URL at which nothing listens.
func refusingURL(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return "http://" + l.Addr().String()
}
