package conformance

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/dispatch/access"
	"github.com/rota-dev/rota/internal/dispatch/keeper"
	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/internal/dispatch/workers"
	"github.com/rota-dev/rota/slot"
)

// Kind is the kind of a Tier's keys.
const Kind = "Widget.example.com"

// slots is how many slots a Tier has.
const slots slot.Count = 16

// Request is one that a client has sent.
type Request struct {
	At   time.Time
	Path string
	Body string
	// Status is the status of the answer; 0 if there was none.
	Status int
}

// Fault makes a Tier behave badly.
type Fault struct {
	// Paths are those that fail; empty: all.
	Paths []string
	// Status is answered, with RetryAfter in seconds if that is not 0. A status of 0 closes the connection.
	Status, RetryAfter int
	// Silent gives no answer, but keeps the connection.
	Silent bool
	// Times is how often; 0: until another Fault is set.
	Times int
}

// Tier is one dispatcher for tests of clients, without a rota and an API server. It misbehaves on demand. Its methods
// may be called concurrently, other than Start and Close.
type Tier struct {
	// Extra adds fields to each answer that no version knows. Set it before the first request.
	Extra bool
	// Length is how long takes last from the next Start on.
	Length time.Duration

	address string
	tls     *tls.Config
	server  *http.Server
	keys    *keeper.Dispatcher
	end     context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	tokens   []string
	fault    *Fault
	requests []Request
	secrets  []string // the tokens of takes
}

// NewTier starts a dispatcher whose takes last that long by default. Close ends it. It accepts the bearer tokens; if
// there are none, any.
func NewTier(length time.Duration, certificate *tls.Config, tokens ...string) (*Tier, error) {
	t := &Tier{Length: length, tls: certificate, tokens: tokens, address: "127.0.0.1:0"}
	if err := t.Start(); err != nil {
		return nil, err
	}
	return t, nil
}

// Start has a tier that was closed serve at the same address, with an empty queue: it knows no take.
func (t *Tier) Start() error {
	var listener net.Listener
	var err error
	for range 50 { // another program may have the port for a moment
		if listener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", t.address); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	t.address = listener.Addr().String()
	begun := time.Now()
	kinds := []keeper.Kind{{Kind: schema.ParseGroupKind(Kind)}}
	t.keys, err = keeper.NewOf(adapter.Parts{
		Slots: slots, Key: slot.KeyName, Late: func() time.Duration { return time.Since(begun) },
	}, keeper.Options{Kinds: kinds, Logger: logr.Discard(), Queue: queue.Config{
		Length: t.Length, MinLength: min(t.Length, time.Second), BaseDelay: 50 * time.Millisecond, MaxDelay: time.Second,
	}})
	if err != nil {
		return err
	}
	front, err := workers.New(workers.Options{
		Dispatcher: t.keys, Kinds: kinds, Guard: guard{t}, Process: workers.NewProcess(), Self: "the dispatcher",
		Reports: func(context.Context) ([]workers.Address, error) { return nil, nil },
		URL:     t.URL(), Client: http.DefaultClient, Logger: logr.Discard(),
	})
	if err != nil {
		return err
	}
	var ctx context.Context
	ctx, t.end = context.WithCancel(context.Background())
	t.running.Go(func() { t.keys.Run(ctx) })
	t.running.Go(front.Run)
	t.keys.SetDeadline(time.Duration(1) << 62)
	t.keys.Open(slot.SetOf(slot.Range{First: 0, Last: slot.Slot(slots - 1)}), 1)
	t.server = &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.serve(w, r, front) }),
		TLSConfig: t.tls, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
	}
	server := t.server
	t.running.Go(func() {
		if t.tls != nil {
			_ = server.ServeTLS(listener, "", "") // until it is closed
		} else {
			_ = server.Serve(listener)
		}
	})
	return nil
}

// Close ends the tier at once. Its connections break.
func (t *Tier) Close() {
	_ = t.server.Close()
	t.end()
	t.running.Wait()
}

// URL is where the tier is.
func (t *Tier) URL() string {
	if t.tls != nil {
		return "https://" + t.address
	}
	return "http://" + t.address
}

// slotOf returns the slot of a name.
func slotOf(name string) slot.Slot { return slots.Of(slot.HashName("default", name)) }

// Change has keys of that name handed out.
func (t *Tier) Change(name string, gone bool) {
	t.keys.Change(queue.Change{
		Key:  queue.Key{Kind: Kind, Namespace: "default", Name: name},
		Slot: slotOf(name), UID: "uid-" + name, Version: "1", Gone: gone,
	})
}

// Forget has the slot of a key go to another dispatcher: its takes have ended.
func (t *Tier) Forget(name string) {
	set := slot.SetOf(slot.Range{First: slotOf(name), Last: slotOf(name)})
	t.keys.Shut(set)
	t.keys.Open(set, 2)
}

// Stats returns the state of the queue.
func (t *Tier) Stats() (queue.Stats, queue.Counts) {
	stats, counts := t.keys.Stats()
	return stats[0], counts
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

// shown returns the tokens of all takes that clients were told.
func (t *Tier) shown() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.secrets)
}

// faulty returns the fault of a request, or nil.
func (t *Tier) faulty(path string) *Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.fault
	if f == nil || len(f.Paths) > 0 && !slices.Contains(f.Paths, path) {
		return nil
	}
	if f.Times > 0 {
		if f.Times--; f.Times == 0 {
			t.fault = nil
		}
	}
	return f
}

// serve has the dispatcher answer, or the fault.
func (t *Tier) serve(w http.ResponseWriter, req *http.Request, front *workers.Front) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	t.mu.Lock()
	a := &answer{ResponseWriter: w, t: t, index: len(t.requests)}
	t.requests = append(t.requests, Request{At: time.Now(), Path: req.URL.Path, Body: string(body)})
	t.mu.Unlock()
	switch f := t.faulty(req.URL.Path); {
	case f == nil:
		front.ServeHTTP(a, req)
	case f.Silent:
		<-req.Context().Done()
		panic(http.ErrAbortHandler)
	case f.Status == 0:
		panic(http.ErrAbortHandler)
	default:
		kind := wire.ProblemUnavailable
		if f.Status == http.StatusTooManyRequests {
			kind = wire.ProblemTooMany
		}
		if f.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
		}
		w.Header().Set("Content-Type", wire.TypeProblem)
		a.WriteHeader(f.Status)
		_ = json.NewEncoder(w).Encode(wire.Problem{Type: wire.ProblemBase + kind, Title: kind, Status: f.Status})
	}
}

// answer records the answer to a request.
type answer struct {
	http.ResponseWriter
	t     *Tier
	index int
	begun bool
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	a.begun = true
	if a.t.Extra {
		a.Header().Del("Content-Length")
	}
	a.t.mu.Lock()
	a.t.requests[a.index].Status = code
	a.t.mu.Unlock()
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter. The dispatcher writes each JSON value at once.
func (a *answer) Write(text []byte) (int, error) {
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
	var v any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		panic(fmt.Sprintf("%q is not a JSON value: %v", text, err))
	}
	a.t.mu.Lock()
	v = a.t.told(v)
	a.t.mu.Unlock()
	out := text
	if a.t.Extra {
		raw, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		raw = append(raw, '\n')
		out = raw
	}
	if _, err := a.ResponseWriter.Write(out); err != nil {
		return 0, err
	}
	return len(text), nil
}

// told notes the tokens in a JSON value, and returns it with fields that no version knows. t.mu is held.
func (t *Tier) told(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			if token, ok := field.(string); ok && name == "token" {
				t.secrets = append(t.secrets, token)
			}
			v[name] = t.told(field)
		}
		v["someday"] = map[string]any{"list": []any{1, nil, "take"}, "token": "not this one"}
	case []any:
		for i := range v {
			v[i] = t.told(v[i])
		}
	}
	return v
}

// guard lets in who has one of the tier's tokens.
type guard struct{ *Tier }

// Authenticate implements workers.Guard.
func (g guard) Authenticate(r *http.Request) (access.User, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.tokens) > 0 && !slices.ContainsFunc(g.tokens, func(token string) bool {
		return r.Header.Get("Authorization") == "Bearer "+token
	}) {
		return access.User{}, &access.Error{Problem: wire.ProblemUnauthenticated, Detail: "the token is not accepted"}
	}
	return access.User{Name: "worker"}, nil
}

// Admit implements workers.Guard.
func (guard) Admit(access.User) (release func(), err error) { return func() {}, nil }

// Authorize implements workers.Guard.
func (guard) Authorize(context.Context, access.User, schema.GroupKind, []string) error { return nil }
