package proxy_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig/proxy"
)

// long is as long as a test waits for what must come.
const long = 30 * time.Second

// backend stands for an API server. A watch sends an event when it is told to; everything else is answered with "done".
type backend struct {
	*httptest.Server
	events chan string

	mu   sync.Mutex
	seen []string
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	b := &backend{events: make(chan string)}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.seen = append(b.seen, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("Authorization"), body)))
		b.mu.Unlock()
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprint(w, "done")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		for {
			select {
			case event := <-b.events:
				fmt.Fprint(w, event)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	b.EnableHTTP2 = true
	b.StartTLS()
	t.Cleanup(func() { b.Config.Close() })
	return b
}

func (b *backend) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Certificate().Raw})
	return &rest.Config{Host: b.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func (b *backend) requests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.seen...)
}

// pair is a proxy and a client of it.
type pair struct {
	*proxy.Proxy
	client *http.Client
}

func newPair(t *testing.T, backends ...*backend) pair {
	t.Helper()
	var configs []*rest.Config
	for _, b := range backends {
		configs = append(configs, b.config())
	}
	p, err := proxy.New(1, configs...)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.CA())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return pair{p, &http.Client{Transport: transport}}
}

// do returns the status code and the body.
func (p pair) do(ctx context.Context, method, path, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.Host()+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "token")
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

func (p pair) must(t *testing.T, method, path, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	if code, text, err := p.do(ctx, method, path, body); err != nil || code != http.StatusOK || text != "done" {
		t.Fatalf("%s %s: %d %q, %v", method, path, code, text, err)
	}
}

// watch begins a watch and returns what reads from it.
func (p pair) watch(t *testing.T) io.Reader {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.Host()+"/x?watch=true", http.NoBody)
	require.NoError(t, err)
	resp, err := p.client.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp.Body
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(long); !check(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func TestNothing(t *testing.T) {
	b := newBackend(t)
	p := newPair(t, b)
	p.must(t, http.MethodPatch, "/x?shardSelector=s", "text")
	if got := b.requests(); len(got) != 1 || got[0] != "PATCH /x?shardSelector=s token text" {
		t.Errorf("the server got %q", got)
	}
	w := p.watch(t)
	eventually(t, "no watch is counted", func() bool { return p.Watches() == 1 })
	b.events <- "event"
	got := make([]byte, 5)
	if _, err := io.ReadFull(w, got); err != nil || string(got) != "event" {
		t.Errorf("the watch brought %q, %v", got, err)
	}
	p.CutWatches()
	if _, err := w.Read(got); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the watch ended with %v, want a reset", err)
	}
	eventually(t, "a watch is still counted", func() bool { return p.Watches() == 0 })
}

func TestAnswers(t *testing.T) {
	b := newBackend(t)
	p := newPair(t, b)
	for _, code := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusForbidden} {
		p.Set(proxy.Faults{Answers: []proxy.Answer{{Code: code, Share: 1}}})
		got, text, err := p.do(t.Context(), http.MethodGet, "/x", "")
		if got != code || err != nil || !strings.Contains(text, `"kind":"Status"`) {
			t.Errorf("%d %q, %v; want a Status of %d", got, text, err, code)
		}
	}
	p.Set(proxy.Faults{Answers: []proxy.Answer{{Code: http.StatusGone, Share: 1}}})
	p.must(t, http.MethodGet, "/x", "")
	if got, text, err := p.do(t.Context(), http.MethodGet, "/x?watch=true", ""); got != http.StatusGone || err != nil || !strings.Contains(text, "Expired") {
		t.Errorf("a watch: %d %q, %v; want 410", got, text, err)
	}
	p.Set(proxy.Faults{Answers: []proxy.Answer{{Code: http.StatusInternalServerError, Share: 0.5}}})
	refused := 0
	for range 100 {
		if code, _, err := p.do(t.Context(), http.MethodGet, "/x", ""); err != nil {
			t.Fatal(err)
		} else if code != http.StatusOK {
			refused++
		}
	}
	if refused < 20 || refused > 80 {
		t.Errorf("%d of 100 requests were answered with an error, want about half", refused)
	}
}

func TestSlow(t *testing.T) {
	b := newBackend(t)
	p := newPair(t, b)
	for name, f := range map[string]proxy.Faults{
		"delay": {Delay: 200 * time.Millisecond}, "throttle": {BytesPerSecond: 100},
	} {
		p.must(t, http.MethodGet, "/x", "") // so that there is a connection
		p.Set(f)
		begun := time.Now()
		p.must(t, http.MethodGet, "/x", "")
		if took := time.Since(begun); took < 150*time.Millisecond {
			t.Errorf("%s: it took %v", name, took)
		}
		p.Set(proxy.Faults{})
	}
}

// A client that does not wait for a delayed request has not sent it.
func TestDelayGivenUp(t *testing.T) {
	b := newBackend(t)
	p := newPair(t, b)
	p.Set(proxy.Faults{Delay: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := p.do(ctx, http.MethodPatch, "/x", ""); err == nil {
		t.Error("there was an answer")
	}
	if got := b.requests(); len(got) != 0 {
		t.Errorf("the server got %q", got)
	}
}

func TestPartitions(t *testing.T) {
	for _, acted := range []bool{false, true} {
		t.Run(fmt.Sprintf("acted=%t", acted), func(t *testing.T) {
			b := newBackend(t)
			p := newPair(t, b)
			p.must(t, http.MethodGet, "/x", "")
			p.Set(proxy.Faults{SwallowRequests: !acted, SwallowResponses: acted})
			ctx, cancel := context.WithTimeout(t.Context(), long)
			defer cancel()
			done := make(chan error, 1)
			go func() {
				_, text, err := p.do(ctx, http.MethodPatch, "/x", "text")
				if err == nil && text != "done" {
					err = errors.New(text)
				}
				done <- err
			}()
			if acted {
				eventually(t, "the server did not get the request", func() bool { return len(b.requests()) == 2 })
			}
			select {
			case err := <-done:
				t.Fatalf("an answer in a partition: %v", err)
			case <-time.After(100 * time.Millisecond):
			}
			if got := b.requests(); !acted && len(got) != 1 {
				t.Errorf("the server got %q", got)
			}
			p.Set(proxy.Faults{}) // what was held back arrives
			require.NoError(t, <-done)
			if got := b.requests(); len(got) != 2 {
				t.Errorf("the server got %q", got)
			}
		})
	}
}

func TestWatches(t *testing.T) {
	b := newBackend(t)
	p := newPair(t, b)
	w := p.watch(t)
	p.Set(proxy.Faults{CutWatches: 50 * time.Millisecond})
	if _, err := io.ReadAll(w); err == nil {
		t.Error("Set did not cut the watch")
	}
	begun := time.Now()
	if _, err := io.ReadAll(p.watch(t)); err == nil || time.Since(begun) < 40*time.Millisecond {
		t.Errorf("a watch ended after %v with %v", time.Since(begun), err)
	}
	p.Set(proxy.Faults{TearWatches: time.Nanosecond})
	w = p.watch(t)
	b.events <- "0123456789"
	if got, err := io.ReadAll(w); err == nil || string(got) != "01234" {
		t.Errorf("a torn watch brought %q, %v", got, err)
	}
	p.Set(proxy.Faults{DropBookmarks: true})
	w = p.watch(t)
	const added, bookmark = `{"type":"ADDED"}` + "\n", `{"type":"BOOKMARK"}` + "\n"
	b.events <- bookmark + added + bookmark
	b.events <- added
	got := make([]byte, 2*len(added))
	if _, err := io.ReadFull(w, got); err != nil || string(got) != added+added {
		t.Errorf("a watch without bookmarks brought %q, %v", got, err)
	}
	p.Set(proxy.Faults{RefuseWatches: true})
	if _, _, err := p.do(t.Context(), http.MethodGet, "/x?watch=true", ""); err == nil {
		t.Error("a watch was not refused")
	}
	p.must(t, http.MethodGet, "/x", "")
}

func TestStripShardSelector(t *testing.T) {
	b := newBackend(t)
	p := newPair(t, b)
	p.Set(proxy.Faults{StripShardSelector: true})
	p.must(t, http.MethodGet, "/x?a=b&shardSelector=s", "")
	if got := b.requests(); len(got) != 1 || got[0] != "GET /x?a=b token" {
		t.Errorf("the server got %q", got)
	}
}

// A held write reaches the server when it is released, long after its client has gone.
func TestHeldWrite(t *testing.T) {
	b := newBackend(t)
	p := newPair(t, b)
	h := p.Hold(func(r *http.Request) bool { return proxy.IsWrite(r) && r.URL.Path == "/x" })
	if _, err := h.Release(t.Context()); err == nil {
		t.Error("released what was not there")
	}
	p.must(t, http.MethodGet, "/x", "")
	p.must(t, http.MethodPatch, "/y", "")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-h.Arrived(); cancel() }()
	if _, _, err := p.do(ctx, http.MethodPatch, "/x?timeout=1s", "held"); err == nil {
		t.Error("the client got an answer")
	}
	<-h.Arrived()
	p.must(t, http.MethodPatch, "/x", "next") // only one is held
	if code, err := h.Release(t.Context()); code != http.StatusOK || err != nil {
		t.Errorf("released: %d, %v", code, err)
	}
	if got := b.requests(); len(got) != 4 || got[3] != "PATCH /x?timeout=1s token held" {
		t.Errorf("the server got %q", got)
	}
}

func TestFailover(t *testing.T) {
	a, b := newBackend(t), newBackend(t)
	p := newPair(t, a, b)
	p.must(t, http.MethodGet, "/x", "")
	a.Config.Close()
	if _, _, err := p.do(t.Context(), http.MethodGet, "/x", ""); err == nil {
		t.Error("an answer of a server that is gone")
	}
	p.Use(1)
	p.must(t, http.MethodGet, "/y", "")
	if got := b.requests(); len(got) != 1 || got[0] != "GET /y token" {
		t.Errorf("the second server got %q", got)
	}
}
