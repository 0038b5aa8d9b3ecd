package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/slot"
)

// Kind is that of the keys of a Tier.
const Kind = "Widget.example.com"

// slots is how many slots a Tier has.
const slots slot.Count = 16

// Request is one that a client has sent.
type Request struct {
	At   time.Time
	Path string
	Body string
	// Status is that of the answer; 0: there was none.
	Status int
}

// Fault makes a Tier behave badly.
type Fault struct {
	// Paths are those that it is about; empty: all.
	Paths []string
	// Status is answered, with RetryAfter in seconds if that is not 0. A status of 0 closes the connection.
	Status, RetryAfter int
	// Silent gives no answer, but keeps the connection.
	Silent bool
	// Times is how often; 0: until another Fault is set.
	Times int
}

// Tier is a dispatcher for tests of clients, with a queue.Queue behind it. Its methods may be called concurrently.
type Tier struct {
	// Extra has fields in each answer that no version knows.
	Extra bool

	address string
	tls     *tls.Config

	mu       sync.Mutex
	start    time.Time
	queue    *queue.Queue
	cfg      queue.Config
	server   *http.Server
	listener net.Listener
	timer    *time.Timer
	lastAsk  uint64
	asks     map[uint64]func(queue.Given)
	streams  map[string]uint64
	takes    map[string]takeOf
	tokens   []string
	fault    *Fault
	requests []Request
}

// takeOf is a take by its token.
type takeOf struct {
	id     uint64
	worker string
}

// NewTier starts a dispatcher whose takes last that long by default. Close ends it.
func NewTier(length time.Duration, certificate *tls.Config, tokens ...string) (*Tier, error) {
	t := &Tier{
		start: time.Now(), tls: certificate, tokens: tokens, address: "127.0.0.1:0",
		cfg: queue.Config{
			Slots: slots, Kinds: []string{Kind}, Length: length, MinLength: min(length, time.Second),
			BaseDelay: 50 * time.Millisecond, MaxDelay: time.Second,
		},
	}
	if err := t.Start(); err != nil {
		return nil, err
	}
	return t, nil
}

// Start has a tier that was closed serve at the same address, with an empty queue: it knows no take.
func (t *Tier) Start() error {
	q, err := queue.New(t.cfg)
	if err != nil {
		return err
	}
	var listener net.Listener
	for range 50 { // another program may have the port for a moment
		if listener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", t.address); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.address, t.listener = listener.Addr().String(), listener
	t.queue, t.asks = q, map[uint64]func(queue.Given){}
	t.streams, t.takes = map[string]uint64{}, map[string]takeOf{}
	q.SetDeadline(0, time.Duration(1)<<62)
	q.Open(t.now(), slot.SetOf(slot.Range{First: 0, Last: slot.Slot(slots - 1)}), 1)
	t.timer = time.AfterFunc(time.Hour, t.step)
	t.server = &http.Server{
		Handler: t, TLSConfig: t.tls, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
	}
	server := t.server
	if t.tls != nil {
		go func() { _ = server.ServeTLS(listener, "", "") }()
	} else {
		go func() { _ = server.Serve(listener) }()
	}
	return nil
}

// Close ends the tier at once. Its connections break.
func (t *Tier) Close() {
	t.mu.Lock()
	server := t.server
	t.timer.Stop()
	_ = t.listener.Close() // the server may not know it yet
	t.mu.Unlock()
	_ = server.Close()
}

// URL is where the tier is.
func (t *Tier) URL() string {
	if t.tls != nil {
		return "https://" + t.address
	}
	return "http://" + t.address
}

func (t *Tier) now() time.Duration { return time.Since(t.start) }

// Change has keys of that name handed out.
func (t *Tier) Change(name string, gone bool) {
	t.mu.Lock()
	err := t.queue.Change(t.now(), queue.Change{
		Key: key(name), Slot: slots.Of(slot.HashName("default", name)), UID: "uid-" + name, Version: "1", Gone: gone,
	})
	t.mu.Unlock()
	if err != nil {
		panic(err)
	}
	t.step()
}

func key(name string) queue.Key { return queue.Key{Kind: Kind, Namespace: "default", Name: name} }

// Forget has the slot of a key go to another dispatcher: its takes have ended.
func (t *Tier) Forget(name string) {
	t.mu.Lock()
	s := slots.Of(slot.HashName("default", name))
	set := slot.SetOf(slot.Range{First: s, Last: s})
	t.queue.Shut(t.now(), set)
	t.queue.Open(t.now(), set, 2)
	t.mu.Unlock()
	t.step()
}

// SetTokens replaces the bearer tokens that are accepted; none: any will do.
func (t *Tier) SetTokens(tokens ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens = tokens
}

// SetFault replaces the fault; nil: there is none.
func (t *Tier) SetFault(f *Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fault = f
}

// Requests returns what clients have sent to paths, or to any if there are none.
func (t *Tier) Requests(paths ...string) []Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Request
	for _, r := range t.requests {
		if len(paths) == 0 || slices.Contains(paths, r.Path) {
			out = append(out, r)
		}
	}
	return out
}

// secrets returns the tokens of all takes.
func (t *Tier) secrets() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.takes))
}

// Takes returns the takes under way.
func (t *Tier) Takes() []queue.Take {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.queue.Takes(t.now())
}

// Stats returns the state of the queue.
func (t *Tier) Stats() (queue.Stats, queue.Counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.queue.Stats()[0], t.queue.Counts()
}

// step carries out what the queue wants.
func (t *Tier) step() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, action := range t.queue.Actions(t.now()) {
		if g, ok := action.(queue.Given); ok && t.asks[g.Ask] != nil {
			t.asks[g.Ask](g)
			if g.Over {
				delete(t.asks, g.Ask)
			}
		}
	}
	t.timer.Reset(min(max(t.queue.Wake()-t.now(), 0), time.Hour))
}

// ServeHTTP implements the protocol, and its faults.
func (t *Tier) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, wire.MaxBody))
	t.mu.Lock()
	index := len(t.requests)
	t.requests = append(t.requests, Request{At: time.Now(), Path: req.URL.Path, Body: string(body)})
	accepted := len(t.tokens) == 0
	for _, token := range t.tokens {
		accepted = accepted || req.Header.Get("Authorization") == "Bearer "+token
	}
	fault := t.fault
	if fault != nil && len(fault.Paths) > 0 && !slices.Contains(fault.Paths, req.URL.Path) {
		fault = nil
	}
	if fault != nil && fault.Times > 0 {
		if fault.Times--; fault.Times == 0 {
			t.fault = nil
		}
	}
	t.mu.Unlock()
	answer := func(status int) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.requests[index].Status = status
	}
	switch {
	case req.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the client has gone
	case err != nil:
		err = problem{wire.ProblemTooLarge, http.StatusRequestEntityTooLarge, err.Error()}
	case fault != nil && fault.Silent:
		<-req.Context().Done()
		panic(http.ErrAbortHandler)
	case fault != nil && fault.Status == 0:
		panic(http.ErrAbortHandler)
	case fault != nil:
		if fault.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(fault.RetryAfter))
		}
		kind := wire.ProblemUnavailable
		if fault.Status == http.StatusTooManyRequests {
			kind = wire.ProblemTooMany
		}
		err = problem{kind, fault.Status, "this is a test"}
	case !accepted:
		err = problem{wire.ProblemUnauthenticated, http.StatusUnauthorized, "the token is not accepted"}
	default:
		out, failed := t.serve(w, req, body, answer)
		if err = failed; req.Context().Err() != nil {
			panic(http.ErrAbortHandler)
		}
		if err != nil {
			break
		}
		t.write(w, out, answer)
		return
	}
	p := message(err)
	w.Header().Set("Content-Type", wire.TypeProblem)
	answer(p.Status)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// message is what a client reads of an error; nil: there is none.
func message(err error) *wire.Problem {
	if err == nil {
		return nil
	}
	var p problem
	if !errors.As(err, &p) {
		p = problem{wire.ProblemInvalid, http.StatusBadRequest, err.Error()}
	}
	return &wire.Problem{Type: wire.ProblemBase + p.kind, Title: p.kind, Status: p.status, Detail: p.detail}
}

// problem is an answer with an error.
type problem struct {
	kind   string
	status int
	detail string
}

func (p problem) Error() string { return p.detail }

func ended(err error) error {
	switch {
	case errors.Is(err, queue.ErrTake):
		return problem{wire.ProblemEnded, http.StatusGone, err.Error()}
	case errors.Is(err, queue.ErrKind):
		return problem{wire.ProblemUnknownKind, http.StatusNotFound, err.Error()}
	}
	return err
}

// streamed is the answer of serve that is written already.
type streamed struct{}

// write sends an answer: nil is 204.
func (t *Tier) write(w http.ResponseWriter, out any, answer func(int)) {
	if _, done := out.(streamed); done {
		return
	}
	if out == nil {
		answer(http.StatusNoContent)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", wire.TypeJSON)
	answer(http.StatusOK)
	_, _ = w.Write(t.encode(out))
}

// encode adds fields that no version knows, if Extra is set.
func (t *Tier) encode(out any) []byte {
	raw, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	if !t.Extra {
		return raw
	}
	var v any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		panic(err)
	}
	if raw, err = json.Marshal(extra(v)); err != nil {
		panic(err)
	}
	return raw
}

func extra(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			v[name] = extra(field)
		}
		v["someday"] = map[string]any{"list": []any{1, nil, "take"}, "token": "not this one"}
	case []any:
		for i := range v {
			v[i] = extra(v[i])
		}
	}
	return v
}

func newToken() string { return rand.Text() }

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// read decodes a request, and refuses fields that are not known.
func read(body []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	return nil
}
