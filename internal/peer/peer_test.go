package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
)

// world is what members share: the table and the Leases.
type world struct {
	t        *testing.T
	patience time.Duration

	mu      sync.Mutex
	entries map[string]Entry  // by member
	owners  map[string]string // members by path
	reads   int
}

func newWorld(t *testing.T) *world {
	return &world{t: t, patience: 2 * time.Minute, entries: map[string]Entry{}, owners: map[string]string{}}
}

func (w *world) own(path, member string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owners[path] = member
}

func (w *world) owner(path string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.owners[path]
}

func (w *world) directory() *Directory {
	return NewDirectory(func(_ context.Context, id string) (Entry, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.reads++
		return ParseEntry(w.entries[id].String()), nil
	}, func(id string) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		_, named := w.entries[id]
		return named
	})
}

type node struct {
	*Forwarder
	client *Client
	served atomic.Int32

	mu       sync.Mutex
	outcomes []string
}

// join adds a member with a handler.
func (w *world) join(id string, next http.HandlerFunc) *node {
	w.t.Helper()
	key, err := NewKey()
	if err != nil {
		w.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.entries[id] = key.Entry(l.Addr().String())
	w.mu.Unlock()
	d, n := w.directory(), &node{}
	n.client = NewClient(key, d, func() string { return id })
	n.Forwarder = NewForwarder(ForwarderEnv{
		Route: "files", Client: n.client, Patience: w.patience, Log: logr.Discard(),
		Gone: func(member string) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			_, named := w.entries[member]
			return !named
		},
		Next: http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			n.served.Add(1)
			next(rw, req)
		}),
		Find: func(req *http.Request) Place {
			owner := w.owner(req.URL.Path)
			return Place{Here: owner == id, Member: owner}
		},
		Count: func(outcome string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.outcomes = append(n.outcomes, outcome)
		},
	})
	s := NewServer(key, d, testr.New(w.t))
	if err := s.Handle("files", n.Peers()); err != nil {
		w.t.Fatal(err)
	}
	if s.Handle("files", n.Peers()) == nil {
		w.t.Error("a second handler of one route is accepted")
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		n.client.Close()
	})
	return n
}

// ask sends a request to a member as a client does.
func (n *node) ask(method, path, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("X-Forwarded-For", "192.0.2.7")
	req.Header.Set("X-Forwarded-Proto", "https")
	resp := httptest.NewRecorder()
	n.ServeHTTP(resp, req)
	return resp
}

func (n *node) want(t *testing.T, served int32, outcomes ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if got, want := strings.Join(n.outcomes, " "), strings.Join(outcomes, " "); n.served.Load() != served || got != want {
		t.Errorf("it served %d, outcomes %q; want %d, %q", n.served.Load(), got, served, want)
	}
}

func echo(rw http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	rw.Header().Set("X-Seen", strings.Join(req.Header["X-Forwarded-For"], ",")+" "+req.Header.Get("X-Forwarded-Proto"))
	rw.WriteHeader(http.StatusAccepted)
	_, _ = rw.Write([]byte(req.Method + " " + req.Host + req.URL.String() + " " + string(body)))
}

func TestRequestsReachTheOwner(t *testing.T) {
	w := newWorld(t)
	a, b := w.join("a", echo), w.join("b", echo)
	w.own("/x", "b")
	for range 3 {
		resp := a.ask(http.MethodPost, "/x?q=1", "hello")
		if resp.Code != http.StatusAccepted || resp.Body.String() != "POST example.com/x?q=1 hello" ||
			resp.Header().Get("X-Seen") != "192.0.2.7, 192.0.2.1 https" {
			t.Errorf("status %d, %q, %v", resp.Code, resp.Body, resp.Header())
		}
	}
	a.want(t, 0, OutcomeForwarded, OutcomeForwarded, OutcomeForwarded)
	b.want(t, 3)
	if w.reads != 2 { // each side reads the other's Lease once
		t.Errorf("%d reads of Leases, want 2", w.reads)
	}
	w.own("/x", "a")
	if resp := a.ask(http.MethodGet, "/x", ""); resp.Code != http.StatusAccepted {
		t.Errorf("status %d", resp.Code)
	}
	a.want(t, 1, OutcomeForwarded, OutcomeForwarded, OutcomeForwarded, OutcomeServed)
}

// The slot moves while the request is on its way: the former owner refuses it, and it goes to the next one.
func TestRequestsFollowTheSlot(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.join("a", echo), w.join("b", echo), w.join("c", echo)
	asked := 0
	find := a.env.Find
	a.env.Find = func(req *http.Request) Place {
		asked++
		if asked == 1 {
			return Place{Member: "b"} // outdated
		}
		return find(req)
	}
	w.own("/x", "c")
	if resp := a.ask(http.MethodPost, "/x", "hello"); resp.Body.String() != "POST example.com/x hello" {
		t.Errorf("status %d, %q", resp.Code, resp.Body)
	}
	a.want(t, 0, OutcomeForwarded)
	b.want(t, 0)
	c.want(t, 1)
}

func TestRequestsWithoutAnOwner(t *testing.T) {
	w := newWorld(t)
	w.patience = 50 * time.Millisecond
	a, b := w.join("a", echo), w.join("b", echo)
	w.own("/beyond", "b")
	find := b.env.Find
	b.env.Find = func(req *http.Request) Place { // to b, a owns it: each holds the other for the owner
		if req.URL.Path == "/beyond" {
			return Place{Member: "a"}
		}
		return find(req)
	}
	w.own("/gone", "z")
	for _, path := range []string{"/none", "/beyond", "/gone"} {
		resp := a.ask(http.MethodPost, path, "hello")
		if resp.Code != http.StatusServiceUnavailable || resp.Header().Get("Retry-After") != "1" {
			t.Errorf("%s: status %d, %v, %q", path, resp.Code, resp.Header(), resp.Body)
		}
	}
	a.want(t, 0, OutcomeUnowned, OutcomeUnowned, OutcomeUnowned)
	b.want(t, 0)
	// A large body is not kept, so it is sent once.
	if resp := a.ask(http.MethodPost, "/beyond", strings.Repeat("x", maxReplay+1)); resp.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", resp.Code)
	}
	w.own("/large", "b")
	large := strings.Repeat("x", 3*maxReplay)
	if resp := a.ask(http.MethodPost, "/large", large); resp.Body.Len() != len("POST example.com/large ")+len(large) {
		t.Errorf("status %d, %d bytes", resp.Code, resp.Body.Len())
	}
}

// A request that the owner may have served is not sent again.
func TestBrokenConnections(t *testing.T) {
	w := newWorld(t)
	a := w.join("a", echo)
	b := w.join("b", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	w.own("/x", "b")
	if resp := a.ask(http.MethodPost, "/x", "hello"); resp.Code != http.StatusBadGateway {
		t.Errorf("status %d, %q", resp.Code, resp.Body)
	}
	a.want(t, 0, OutcomeBroken)
	b.want(t, 1)
}

// A request to an owner that does not answer, because its machine is gone, ends when the owner is expelled.
func TestOwnersThatAreExpelled(t *testing.T) {
	w := newWorld(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	a := w.join("a", echo)
	w.join("b", func(http.ResponseWriter, *http.Request) { close(arrived); <-release })
	t.Cleanup(func() { close(release) })
	w.own("/x", "b")
	go func() {
		<-arrived
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.entries, "b")
	}()
	if resp := a.ask(http.MethodPost, "/x", "hello"); resp.Code != http.StatusBadGateway {
		t.Errorf("status %d, %q", resp.Code, resp.Body)
	}
	a.want(t, 0, OutcomeBroken)
}

// A process that is not in the Leases is refused, on either side of a connection, and so is one with another's name.
func TestStrangers(t *testing.T) {
	w := newWorld(t)
	w.patience = 50 * time.Millisecond
	a, b := w.join("a", echo), w.join("b", echo)
	w.own("/x", "b")
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "", "nobody"} {
		stranger := NewClient(key, w.directory(), func() string { return name })
		defer stranger.Close()
		_, err := stranger.Send(httptest.NewRequest(http.MethodGet, "/x", nil), "b", "files") //nolint:bodyclose // none
		if !errors.Is(err, ErrNotServed) {
			t.Errorf("a stranger that calls itself %q: %v", name, err)
		}
	}
	plain := &http.Client{Transport: &http.Transport{}}
	if resp, err := plain.Get("http://" + w.entries["b"].Address + "/x"); err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("plain HTTP gets status %d", resp.StatusCode)
		}
	}
	plain.CloseIdleConnections()
	w.mu.Lock() // b's port is now another process's
	w.entries["b"] = Entry{w.entries["b"].Address, key.fingerprint}
	w.mu.Unlock()
	if resp := a.ask(http.MethodGet, "/x", ""); resp.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", resp.Code)
	}
	b.want(t, 0)
}

func TestEntries(t *testing.T) {
	for text, want := range map[string]Entry{
		"": {}, "10.0.0.7:9444": {}, "a b c": {}, "10.0.0.7:9444 f": {"10.0.0.7:9444", "f"},
	} {
		if got := ParseEntry(text); got != want || ParseEntry(got.String()) != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if (Entry{}).String() != "" {
		t.Error("the zero entry has a text")
	}
}
