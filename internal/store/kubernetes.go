package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	eventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/permission"
)

// Options are the options of NewKubernetes. Name and Namespace are required.
type Options struct {
	// Namespace is the namespace of the rota's objects.
	Namespace string
	// Name is the name of the rota and of its ConfigMap, and the prefix of the names of its Leases. It must be a DNS
	// label: at most 63 lower-case letters, digits and dashes.
	Name string
	// LeaseDuration is written into the Leases for people to read, in whole seconds. Default 15 s.
	LeaseDuration time.Duration
	// Instance is the reporting instance of events, usually the member's ID. Default: the rota's name.
	Instance string
	// Peer returns how other members reach this one, for its Lease (package peer), or an empty string. Optional.
	Peer func() string
	// Report is called with the error of each failed attempt to open a watch, and of each event that could not be created.
	// what names it, for example "Cannot watch configmaps". It is called from several goroutines and must not block.
	// Optional.
	Report func(what string, err error)
}

const (
	// readTimeout limits a GET or LIST, and the opening of a watch.
	readTimeout = 10 * time.Second
	// windowShare is the fraction of a write's timeout within which the write must be sent. The server gets the rest.
	windowShare = 4
)

// Kubernetes is the Store in a Kubernetes API server.
//
// It does not share connections with other clients of the process, and has no client-side rate limit. It uses one
// connection for calls and one for watches. The one for calls is dropped when a call times out on it without any
// answer.
type Kubernetes struct {
	opts      Options
	calls     clients
	watches   clients
	notes     sync.WaitGroup
	noteSlots chan struct{}
	closing   chan struct{} // closed by Close
	closed    sync.Once

	mu sync.Mutex
	// last holds the objects as last seen, by resource and name, so that a write keeps others' changes to them.
	last map[string]object
	// creating is when the creation of a Lease was first tried, by ID, until it succeeds.
	creating map[string]metav1.MicroTime
}

type object interface {
	runtime.Object
	metav1.Object
}

// clients are the REST clients over one HTTP client.
type clients struct {
	http                 *http.Client
	conns                *connections
	core, leases, events rest.Interface
}

// NewKubernetes returns the store of a rota. It copies cfg and uses its credentials, proxy, TLS and wrappers, but not
// its limits and timeout. It does not send any request.
func NewKubernetes(cfg *rest.Config, opts Options) (*Kubernetes, error) {
	if reasons := validation.IsDNS1123Label(opts.Name); len(reasons) > 0 {
		return nil, fmt.Errorf("rota name %q: %s", opts.Name, strings.Join(reasons, "; "))
	}
	if opts.Namespace == "" {
		return nil, fmt.Errorf("rota %s: the namespace is empty; in a cluster it is in "+
			"/var/run/secrets/kubernetes.io/serviceaccount/namespace", opts.Name)
	}
	if opts.LeaseDuration <= 0 {
		opts.LeaseDuration = 15 * time.Second
	}
	if opts.Instance == "" {
		opts.Instance = opts.Name
	}
	if opts.Peer == nil {
		opts.Peer = func() string { return "" }
	}
	if opts.Report == nil {
		opts.Report = func(string, error) {}
	}
	calls, err := newClients(cfg)
	if err != nil {
		return nil, fmt.Errorf("rota %s: %w", opts.Name, err)
	}
	watches, err := newClients(cfg)
	if err != nil {
		return nil, fmt.Errorf("rota %s: %w", opts.Name, err)
	}
	return &Kubernetes{
		opts: opts, calls: calls, watches: watches,
		noteSlots: make(chan struct{}, maxNotes), closing: make(chan struct{}), last: map[string]object{},
		creating: map[string]metav1.MicroTime{},
	}, nil
}

// Close implements Store.
func (k *Kubernetes) Close() {
	k.closed.Do(func() { close(k.closing) })
	k.notes.Wait()
	k.calls.closeIdle()
	k.watches.closeIdle()
}

func newClients(cfg *rest.Config) (clients, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.RateLimiter, cfg.Timeout = -1, nil, 0
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if cfg.UserAgent == "" {
		cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	cfg.UserAgent += " rota"
	conns := &connections{open: map[*connection]struct{}{}}
	if cfg.Transport == nil {
		// A separate Dial also keeps client-go from sharing the connections with the rest of the process.
		cfg.Dial = conns.dial(dialer(cfg))
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return clients{}, err
	}
	// HTTPClientFor may return http.DefaultClient, which must not be changed.
	own := *client
	if own.Transport == nil {
		own.Transport = http.DefaultTransport
	}
	own.Transport = onceTransport{own.Transport}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	core, errCore := corev1.NewForConfigAndClient(cfg, &own)
	leases, errLeases := coordinationv1.NewForConfigAndClient(cfg, &own)
	events, errEvents := eventsv1.NewForConfigAndClient(cfg, &own)
	if err := errors.Join(errCore, errLeases, errEvents); err != nil {
		return clients{}, err
	}
	return clients{&own, conns, core.RESTClient(), leases.RESTClient(), events.RESTClient()}, nil
}

func dialer(cfg *rest.Config) dialFunc {
	if cfg.Dial != nil {
		return cfg.Dial
	}
	// The watch connection sends nothing for long periods. These probes notice a dead peer within about 11 s. HTTP/2's own
	// pings would take 45 s.
	probes := net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}
	return (&net.Dialer{Timeout: readTimeout, KeepAliveConfig: probes}).DialContext
}

func (c clients) closeIdle() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }

// write sends one write, at most once, and decodes the answer into into, unless that is nil.
//
// The write must be sent within a quarter of the timeout. The server gets the other three quarters, by the parameter
// timeout=. So the write takes effect within the timeout or never. The client waits for the whole timeout.
func (k *Kubernetes) write(ctx context.Context, timeout time.Duration, req *rest.Request, into runtime.Object,
	want permission.Error,
) (member.Outcome, error) {
	if timeout <= 0 {
		return member.OutcomeFailed, fmt.Errorf("%s: no time left", about(want))
	}
	begun, s := time.Now(), &sending{}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, sendingKey{}, s), timeout)
	defer cancel()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	window := timeout / windowShare
	defer s.window(window, abort).Stop()
	result := req.MaxRetries(0).Param("timeout", (timeout - window).String()).Do(ctx)
	err := result.Error()
	if err == nil && into != nil {
		err = result.Into(into)
	}
	sent := s.close()
	if errors.Is(context.Cause(ctx), errNotSent) {
		err = errNotSent
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		k.calls.conns.dropSilent(begun.Add(timeout / 2))
	}
	return outcome(err, sent), wrap(want, err)
}

// get reads one object consistently.
func (k *Kubernetes) get(ctx context.Context, req *rest.Request, into runtime.Object, want permission.Error) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := req.MaxRetries(0).Do(ctx).Into(into)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		k.calls.conns.dropSilent(begun.Add(readTimeout / 2))
	}
	return wrap(want, err)
}

// remember stores an object, unless a newer version of it is stored, since a watch may lag.
func (k *Kubernetes) remember(key string, obj object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := k.last[key]
	if last != nil && last.GetUID() == obj.GetUID() &&
		resourceversion.Compare(obj.GetResourceVersion(), last.GetResourceVersion()) < 0 {
		return
	}
	k.last[key] = obj
}

func (k *Kubernetes) forget(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.last, key)
}

func (k *Kubernetes) recall(key string) object {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last[key]
}

// about names the object of a request, for errors.
func about(want permission.Error) string {
	name := want.Resource + " " + want.Namespace
	if want.Name != "" {
		name += "/" + want.Name
	}
	return name
}

// wrap adds the verb, the object and the missing rule to an error. It returns nil for nil.
func wrap(want permission.Error, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", want.Verb, about(want), permission.Refused(err, want))
}
