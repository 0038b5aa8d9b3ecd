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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/access"
	"github.com/rota-dev/rota/internal/dispatch/keeper"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/internal/dispatch/workers"
	"github.com/rota-dev/rota/test/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}) }

const audience = "rota.dev/dispatch"

var configMap = schema.GroupKind{Kind: "ConfigMap"}

// tier is a rota of dispatchers, each with a server.
type tier struct {
	t         *testing.T
	config    *rest.Config
	client    *kubernetes.Clientset
	namespace string
	guard     *access.Guard
	started   int
	length    time.Duration // of takes
}

type replica struct {
	*httptest.Server
	leave context.CancelFunc
	done  chan error
	once  sync.Once
	err   error
}

func newTier(t *testing.T) *tier {
	t.Helper()
	config := controlplane.For(t).Config()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := access.New(config, access.Options{Audience: audience})
	if err != nil {
		t.Fatal(err)
	}
	x := &tier{t: t, config: config, client: client, namespace: controlplane.Namespace(t), guard: guard,
		length: 2 * time.Second}
	_, err = client.RbacV1().Roles(x.namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "take"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"take"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// user returns a client that sends a ServiceAccount's token. may says whether it may take keys.
func (x *tier) user(name string, may bool) *http.Client {
	x.t.Helper()
	ctx := x.t.Context()
	_, err := x.client.CoreV1().ServiceAccounts(x.namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		x.t.Fatal(err)
	}
	if may {
		_, err = x.client.RbacV1().RoleBindings(x.namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "take"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: x.namespace, Name: name}},
		}, metav1.CreateOptions{})
		if err != nil {
			x.t.Fatal(err)
		}
	}
	token, err := x.client.CoreV1().ServiceAccounts(x.namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}},
		metav1.CreateOptions{})
	if err != nil {
		x.t.Fatal(err)
	}
	return &http.Client{Transport: bearer{token.Status.Token, transport(x.t)}}
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

// start starts a dispatcher. peer is the client with which it asks others.
func (x *tier) start(peer *http.Client) *replica {
	x.t.Helper()
	x.started++
	r, err := rota.New(x.config, rota.Options{
		Name: "tier", Namespace: x.namespace, LeaseDuration: 4 * time.Second, RenewDeadline: 3 * time.Second,
		RetryPeriod: 500 * time.Millisecond, WriteTimeout: time.Second, FenceDelay: 1500 * time.Millisecond,
		Identity: rota.Identity{Pod: "tier-" + strconv.Itoa(x.started)},
	})
	if err != nil {
		x.t.Fatal(err)
	}
	var handler atomic.Pointer[workers.Front]
	m := &replica{done: make(chan error, 1)}
	m.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.Load().ServeHTTP(w, r)
	}))
	m.EnableHTTP2 = true
	m.StartTLS()
	process := workers.NewProcess()
	kinds := []keeper.Kind{{Kind: configMap, Namespaces: []string{x.namespace}, Selector: "tier=yes"}}
	o := keeper.Options{Kinds: kinds, Address: process.At(m.URL)}
	o.Queue.Length = x.length
	d, err := keeper.New(x.config, r, o)
	if err != nil {
		x.t.Fatal(err)
	}
	reports, err := workers.Reports(x.config, r.Name(), r.Adapt(adapter.Grant()).Table)
	if err != nil {
		x.t.Fatal(err)
	}
	f, err := workers.New(workers.Options{
		Dispatcher: d, Kinds: kinds, Guard: x.guard, Process: process, URL: m.URL, Reports: reports, Client: peer,
		Self: "system:serviceaccount:" + x.namespace + ":dispatcher",
	})
	if err != nil {
		x.t.Fatal(err)
	}
	handler.Store(f)
	ctx, leave := context.WithCancel(context.Background())
	m.leave = leave
	life, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.Run(life) })
	running.Go(f.Run)
	go func() {
		err := r.Run(ctx)
		end()
		running.Wait()
		m.Close()
		f.Wait()
		m.done <- err
	}()
	x.t.Cleanup(func() { m.stop(x.t) })
	return m
}

func (m *replica) stop(t *testing.T) {
	t.Helper()
	m.once.Do(func() {
		m.leave()
		select {
		case m.err = <-m.done:
			if m.err != nil {
				t.Error(m.err)
			}
		case <-time.After(time.Minute):
			t.Error("a dispatcher does not end")
		}
	})
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

// create creates objects whose keys are handed out.
func (x *tier) create(from, to int) {
	x.t.Helper()
	for i := from; i < to; i++ {
		_, err := x.client.CoreV1().ConfigMaps(x.namespace).Create(x.t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "object-" + strconv.Itoa(i), Labels: map[string]string{"tier": "yes"}},
		}, metav1.CreateOptions{})
		if err != nil {
			x.t.Fatal(err)
		}
	}
}

// book notes who has which key.
type book struct {
	t      *testing.T
	mu     sync.Mutex
	has    map[string]bool
	worked map[string]int
}

func newBook(t *testing.T) *book {
	return &book{t: t, has: map[string]bool{}, worked: map[string]int{}}
}

func (b *book) begin(take wire.Take) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.has[take.Name] {
		b.t.Errorf("two workers have %s", take.Name)
	}
	b.has[take.Name] = true
}

func (b *book) end(take wire.Take) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.has, take.Name)
	b.worked[take.Name]++
}

// wait waits until all objects have been worked on.
func (b *book) wait(from, to int) {
	b.t.Helper()
	err := await.Until(b.t.Context(), 20*time.Millisecond, time.Minute, func() string {
		b.mu.Lock()
		defer b.mu.Unlock()
		for i := from; i < to; i++ {
			if name := "object-" + strconv.Itoa(i); b.worked[name] == 0 {
				return name + " has not been worked on"
			}
		}
		return ""
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// poll takes keys at one dispatcher and says at any that they are done.
func (x *tier) poll(ctx context.Context, c *http.Client, b *book, name string, at func() *replica, n int) {
	for ctx.Err() == nil {
		var out wire.TakeResponse
		err := post(ctx, c, at().URL, wire.PathTake, wire.TakeRequest{Worker: name, Max: n, WaitSeconds: 2}, &out)
		if err != nil && ctx.Err() == nil {
			x.t.Logf("%s: %v", name, err) // a dispatcher that ends
			_ = await.Sleep(ctx, 50*time.Millisecond)
		}
		for _, take := range out.Takes {
			if take.ExpiresInSeconds <= 0 || take.Kind != "ConfigMap" || take.UID == "" || take.Attempt != 1 {
				x.t.Errorf("a take of %+v", take)
			}
			b.begin(take)
			time.Sleep(2 * time.Millisecond)
			b.end(take)
			if err := post(context.WithoutCancel(ctx), c, at().URL, wire.PathDone, wire.DoneRequest{Token: take.Token},
				nil); err != nil && ctx.Err() == nil {
				x.t.Logf("%s: done: %v", name, err)
			}
		}
	}
}

// TestAnyDispatcher: a worker gets the keys of all dispatchers from one of them, while others join and leave.
func TestAnyDispatcher(t *testing.T) {
	t.Parallel()
	x := newTier(t)
	peer, worker := x.user("dispatcher", false), x.user("worker", true)
	x.create(0, 40)
	a := x.start(peer)
	b := x.start(peer)
	book := newBook(t)
	var workers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer workers.Wait()
	defer stop()
	for i := range 3 {
		name := "worker-" + strconv.Itoa(i)
		workers.Go(func() { x.poll(ctx, worker, book, name, func() *replica { return a }, 1+4*i) })
	}
	book.wait(0, 40)
	time.Sleep(3 * time.Second) // b gets its share
	x.create(40, 80)
	book.wait(40, 80)
	c := x.start(peer)
	b.stop(t)
	x.create(80, 120)
	book.wait(80, 120)

	var stats wire.Stats
	err := await.Until(t.Context(), 50*time.Millisecond, 30*time.Second, func() string {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL+wire.PathStats, nil)
		if err := do(worker, r, &stats); err != nil {
			return err.Error()
		}
		if stats.Dispatchers != 2 || stats.Silent != 0 || len(stats.Kinds) != 1 || stats.Kinds[0].Pending != 0 {
			return fmt.Sprintf("%+v", stats)
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	// A stream at the other one.
	stop()
	workers.Wait()
	ctx, stop = context.WithCancel(t.Context())
	defer stop()
	workers.Go(func() { x.streams(ctx, worker, book, a, c) })
	x.create(120, 160)
	book.wait(120, 160)
}

// streams takes keys from a stream, and gives it credit at another dispatcher.
func (x *tier) streams(ctx context.Context, c *http.Client, b *book, other, at *replica) {
	text, _ := json.Marshal(wire.StreamRequest{Worker: "streamer", Credit: 5})
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
				x.t.Error(err)
			}
			return
		}
		if e.Stream != "" {
			name = e.Stream
		}
		if e.Take == nil {
			continue
		}
		b.begin(*e.Take)
		b.end(*e.Take)
		if err := post(ctx, c, at.URL, wire.PathDone, wire.DoneRequest{Token: e.Take.Token}, nil); err != nil && ctx.Err() == nil {
			x.t.Error(err)
		}
		if err := post(ctx, c, other.URL, wire.PathCredit, wire.CreditRequest{Stream: name, Credit: 1}, nil); err != nil &&
			ctx.Err() == nil {
			x.t.Error(err)
		}
	}
}
