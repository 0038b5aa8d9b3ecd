package workers_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/dispatch/access"
	"github.com/rota-dev/rota/internal/dispatch/keeper"
	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/internal/dispatch/workers"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

const slots slot.Count = 16

var configMap = schema.GroupKind{Kind: "ConfigMap"}

// tier has dispatchers without a rota, each with a server. It does what the rota and the API server do: it says which
// slots each has, what changes, and who may take keys.
type tier struct {
	t      *testing.T
	length time.Duration // of takes

	mu    sync.Mutex
	may   map[string]bool // the users, and whether they may take keys
	peer  *http.Client    // of the dispatchers
	all   []*replica
	names []string // of the objects
}

type replica struct {
	*httptest.Server
	keys *keeper.Dispatcher
	at   string
	has  slot.Set
	end  func()
}

// newTier starts n dispatchers, which share the slots.
func newTier(t *testing.T, length time.Duration, n int) (*tier, []*replica) {
	t.Helper()
	x := &tier{t: t, length: length, may: map[string]bool{}}
	x.peer = x.user("dispatcher", false)
	var all []*replica
	for i := range n {
		m := x.run()
		for s := slot.Slot(i); s < slot.Slot(slots); s += slot.Slot(n) {
			m.has.Add(s)
		}
		m.keys.Open(m.has, 1)
		all = append(all, m)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all = slices.Clone(all)
	return x, all
}

// Authenticate implements workers.Guard: a user's token is the user's name.
func (x *tier) Authenticate(r *http.Request) (access.User, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	name, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if _, known := x.may[name]; !known {
		return access.User{}, &access.Error{Problem: wire.ProblemUnauthenticated, Detail: "nobody has this token"}
	}
	return access.User{Name: name}, nil
}

// Admit implements workers.Guard.
func (x *tier) Admit(access.User) (release func(), err error) { return func() {}, nil }

// Authorize implements workers.Guard.
func (x *tier) Authorize(_ context.Context, u access.User, kind schema.GroupKind, _ []string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.may[u.Name] {
		return &access.Error{Problem: wire.ProblemForbidden, Detail: u.Name + " may not take keys of " + kind.String()}
	}
	return nil
}

// user returns a client that sends a user's token. may says whether it may take keys.
func (x *tier) user(name string, may bool) *http.Client {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.may[name] = may
	return &http.Client{Transport: bearer{name, transport(x.t)}}
}

// bearer sends a token.
type bearer struct {
	token string
	http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}

// roots has the certificate that all servers of httptest have.
var roots = sync.OnceValue(func() *x509.CertPool {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
})

func transport(t *testing.T) *http.Transport {
	out := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots()}, ForceAttemptHTTP2: true, // Go's default is 1.2
	}
	t.Cleanup(out.CloseIdleConnections)
	return out
}

// run starts a dispatcher without slots.
func (x *tier) run() *replica {
	x.t.Helper()
	begun, kinds := time.Now(), []keeper.Kind{{Kind: configMap}}
	o := keeper.Options{Kinds: kinds, Logger: logr.Discard()}
	o.Queue.Length = x.length
	d, err := keeper.NewOf(adapter.Parts{
		Slots: slots, Key: slot.KeyName, Late: func() time.Duration { return time.Since(begun) },
	}, o)
	require.NoError(x.t, err)
	m := &replica{Server: httptest.NewUnstartedServer(nil), keys: d}
	url, process := "https://"+m.Listener.Addr().String(), workers.NewProcess()
	m.at = process.At(url)
	f, err := workers.New(workers.Options{
		Dispatcher: d, Kinds: kinds, Guard: x, Process: process, URL: url, Reports: x.reports, Client: x.peer,
		Self: "dispatcher", Logger: logr.Discard(),
	})
	require.NoError(x.t, err)
	m.Config.Handler = f
	m.EnableHTTP2 = true
	m.StartTLS()
	life, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.Run(life) })
	running.Go(f.Run)
	d.SetDeadline(time.Hour)
	m.end = sync.OnceFunc(func() {
		end()
		running.Wait()
		m.Close()
		f.Wait()
	})
	x.t.Cleanup(m.end)
	return m
}

// reports are those of the dispatchers that have not left.
func (x *tier) reports(context.Context) (out []workers.Address, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range x.all {
		out = append(out, workers.Address{At: m.at})
	}
	return out, nil
}

// leave has a dispatcher hand its slots to another one, which lists their objects, and end.
func (x *tier) leave(from, to *replica) {
	x.t.Helper()
	idle := make(chan slot.Slot, slots)
	from.keys.Drain(from.has, func(s slot.Slot, _ []table.Gone) { idle <- s })
	for range from.has.Len() {
		<-idle
	}
	from.keys.Shut(from.has)
	x.mu.Lock()
	x.all = slices.DeleteFunc(x.all, func(m *replica) bool { return m == from })
	to.keys.Open(from.has, 2)
	to.has = to.has.Union(from.has)
	for _, name := range x.names {
		if from.has.Has(slotOf(name)) {
			to.keys.Change(queue.Change{Key: keyOf(name), Slot: slotOf(name), UID: name, Version: "1", Class: queue.Opened})
		}
	}
	x.mu.Unlock()
	from.end()
}

func keyOf(name string) queue.Key {
	return queue.Key{Kind: configMap.String(), Namespace: "default", Name: name}
}

func slotOf(name string) slot.Slot { return slots.Of(slot.HashName("default", name)) }

// change has an object change, or go.
func (x *tier) change(name string, gone bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.names = append(x.names, name)
	for _, m := range x.all {
		if m.has.Has(slotOf(name)) {
			m.keys.Change(queue.Change{Key: keyOf(name), Slot: slotOf(name), UID: name, Version: "1", Gone: gone})
		}
	}
}

// create creates objects.
func (x *tier) create(from, to int) {
	for i := from; i < to; i++ {
		x.change("object-"+strconv.Itoa(i), false)
	}
}

// post sends a request. Its error is a *refusal if it was refused.
func post(ctx context.Context, c *http.Client, at, path string, in, out any) error {
	body, ok := in.(string)
	if !ok {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = string(text)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", wire.TypeJSON)
	return do(c, r, out)
}

func do(c *http.Client, r *http.Request, out any) error {
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode >= http.StatusBadRequest {
		p := &refusal{header: answer.Header}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&p.Problem); err != nil || answer.Header.Get("Content-Type") != wire.TypeProblem ||
			p.Status != answer.StatusCode || p.Title == "" || p.Detail == "" {
			return fmt.Errorf("%d with %q, which is no problem: %w", answer.StatusCode, text, err)
		}
		p.Type = strings.TrimPrefix(p.Type, wire.ProblemBase)
		return p
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

type refusal struct {
	wire.Problem
	header http.Header
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %s: %s", r.Status, r.Type, r.Detail) }

// stream calls work with each key that comes by a stream with that credit, until work returns false or ctx ends.
func (x *tier) stream(ctx context.Context, c *http.Client, at *replica, credit int, work func(string, wire.Take) bool) {
	text, _ := json.Marshal(wire.StreamRequest{Worker: "streamer", Credit: credit})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at.URL+wire.PathStream, bytes.NewReader(text))
	if err != nil {
		x.t.Error(err)
		return
	}
	r.Header.Set("Content-Type", wire.TypeJSON)
	answer, err := c.Do(r)
	if err != nil {
		x.t.Error(err)
		return
	}
	defer func() { _ = answer.Body.Close() }()
	name := ""
	for lines := json.NewDecoder(answer.Body); ; {
		var e wire.StreamEvent
		if err := lines.Decode(&e); err != nil {
			if ctx.Err() == nil {
				x.t.Errorf("a stream ends: %v", err)
			}
			return
		}
		if e.Stream != "" {
			name = e.Stream
		}
		if e.Take != nil && !work(name, *e.Take) {
			return
		}
	}
}
