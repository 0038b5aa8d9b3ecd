package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/cable"
)

// A Proxy is the way of one client to the API servers. Its methods may be called concurrently.
type Proxy struct {
	server    *httptest.Server
	upstreams []upstream
	reverse   *httputil.ReverseProxy
	// requests are bytes from the client, responses bytes to it.
	requests, responses *valve

	current atomic.Pointer[Faults]
	index   atomic.Int64

	mu      sync.Mutex
	random  *rand.Rand
	held    []*Held
	watches map[*watch]struct{}
}

type upstream struct {
	url       *url.URL
	transport http.RoundTripper
}

// watch is one that is under way.
type watch struct{ cancel context.CancelFunc }

// New starts a proxy to the first of some API servers. The client's credentials are passed on; of the configurations
// only address and authority matter. seed is for answers that only a part of the requests get.
func New(seed uint64, servers ...*rest.Config) (*Proxy, error) {
	p := &Proxy{
		requests: newValve(), responses: newValve(), random: rand.New(rand.NewPCG(seed, 1)), watches: map[*watch]struct{}{},
	}
	p.current.Store(&Faults{})
	for _, cfg := range servers {
		cfg = rest.AnonymousClientConfig(cfg)
		transport, err := rest.TransportFor(cfg)
		if err != nil {
			return nil, err
		}
		target, err := url.Parse(cfg.Host)
		if err != nil {
			return nil, err
		}
		p.upstreams = append(p.upstreams, upstream{target, transport})
	}
	p.reverse = &httputil.ReverseProxy{
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) { return p.upstream().transport.RoundTrip(r) }),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(p.upstream().url)
			if query := r.Out.URL.Query(); p.faults().StripShardSelector && query.Has("shardSelector") {
				query.Del("shardSelector")
				r.Out.URL.RawQuery = query.Encode()
			}
		},
		ModifyResponse: p.change,
		FlushInterval:  -1,
		// A server that is gone resets what is under way.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	inner, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.server = httptest.NewUnstartedServer(p)
	_ = p.server.Listener.Close()
	p.server.Listener, p.server.EnableHTTP2 = listener{inner, p}, true
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.StartTLS()
	return p, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Close ends the proxy and all its connections.
func (p *Proxy) Close() {
	p.requests.set(false)
	p.responses.set(false)
	_ = p.server.Config.Close() // Server.Close would wait for requests that never end
}

// Host and CA are for the client's configuration.
func (p *Proxy) Host() string { return p.server.URL }

// CA is the authority of the proxy's certificate, as PEM.
func (p *Proxy) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
}

// Set replaces what the proxy does. Watches that are under way are cut if that concerns watches.
func (p *Proxy) Set(f Faults) {
	p.current.Store(&f)
	p.requests.set(f.SwallowRequests)
	p.responses.set(f.SwallowResponses)
	if f.concernWatches() {
		p.CutWatches()
	}
}

func (p *Proxy) faults() *Faults { return p.current.Load() }

// Use sends requests to the i-th API server from now on. Watches stay where they are.
func (p *Proxy) Use(i int) { p.index.Store(int64(i)) }

func (p *Proxy) upstream() upstream { return p.upstreams[p.index.Load()] }

// Watches returns the number of watches under way.
func (p *Proxy) Watches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.watches)
}

// CutWatches resets all watches under way.
func (p *Proxy) CutWatches() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.watches {
		w.cancel()
	}
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := p.faults()
	if p.take(r) {
		panic(http.ErrAbortHandler)
	}
	if f.Delay > 0 && (f.Delayed == nil || f.Delayed(r)) {
		select {
		case <-time.After(f.Delay):
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	if code := p.answer(f, r); code != 0 {
		writeStatus(w, code)
		return
	}
	if cable.IsWatch(r) {
		if f.RefuseWatches {
			panic(http.ErrAbortHandler)
		}
		var done func()
		r, done = p.begin(r, f.CutWatches)
		defer done()
	}
	p.reverse.ServeHTTP(w, r)
}

// begin counts a watch, which ends after the time given if that is not 0.
func (p *Proxy) begin(r *http.Request, limit time.Duration) (*http.Request, func()) {
	ctx, cancel := context.WithCancel(r.Context())
	if limit > 0 {
		time.AfterFunc(limit, cancel)
	}
	w := &watch{cancel}
	p.mu.Lock()
	p.watches[w] = struct{}{}
	p.mu.Unlock()
	return r.WithContext(ctx), func() {
		cancel()
		p.mu.Lock()
		delete(p.watches, w)
		p.mu.Unlock()
	}
}

// answer returns the status code to answer with; 0: the API server shall.
func (p *Proxy) answer(f *Faults, r *http.Request) int {
	for _, a := range f.Answers {
		if !a.concerns(r) {
			continue
		}
		p.mu.Lock()
		hit := p.random.Float64() < a.Share
		p.mu.Unlock()
		if hit {
			return a.Code
		}
	}
	return 0
}

func writeStatus(w http.ResponseWriter, code int) {
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // a client that is gone needs no answer
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Reason: metav1.StatusReason(reason[code]), Code: int32(code), Message: `User "member" cannot do this, says the proxy`,
	})
}

// change holds an answer back, makes a watch end within an event, or has it come without bookmarks.
func (p *Proxy) change(resp *http.Response) error {
	_ = await.Sleep(resp.Request.Context(), p.faults().AnswerDelay)
	if !cable.IsWatch(resp.Request) || resp.StatusCode != http.StatusOK {
		return nil
	}
	f := p.faults()
	if f.TearWatches > 0 {
		resp.Body = &torn{ReadCloser: resp.Body, from: time.Now().Add(f.TearWatches)}
	}
	if f.DropBookmarks && strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		resp.Body = &unmarked{ReadCloser: resp.Body, lines: bufio.NewReader(resp.Body)}
	}
	return nil
}

// unmarked is a watch in JSON, an event a line, without its bookmarks.
type unmarked struct {
	io.ReadCloser
	lines *bufio.Reader
	rest  []byte
}

// Read implements io.Reader.
func (u *unmarked) Read(b []byte) (int, error) {
	for len(u.rest) == 0 {
		line, err := u.lines.ReadBytes('\n')
		if err != nil {
			return 0, err
		}
		if !bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)) {
			u.rest = line
		}
	}
	n := copy(b, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

// torn is a stream that breaks in the middle of what comes first after a time.
type torn struct {
	io.ReadCloser
	from time.Time
	over bool
}

var errTorn = errors.New("torn")

// Read implements io.Reader.
func (t *torn) Read(b []byte) (int, error) {
	if t.over {
		return 0, errTorn
	}
	n, err := t.ReadCloser.Read(b)
	if n > 1 && time.Now().After(t.from) {
		t.over = true
		return n / 2, nil
	}
	return n, err
}
