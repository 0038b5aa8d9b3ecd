package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/access"
	"github.com/rota-dev/rota/internal/dispatch/keeper"
	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/internal/dispatch/workers"
	"github.com/rota-dev/rota/internal/server"
	"github.com/rota-dev/rota/permission"
)

const (
	// patience is how long permissions and the token may be wrong at the start, since a new ServiceAccount takes a moment.
	patience = 5 * time.Second
	// endTime bounds the remaining requests when everything else has ended.
	endTime = 10 * time.Second
)

// Dispatcher is one dispatcher of a tier, with its servers. Create it with New, and call Run.
type Dispatcher struct {
	c       *Config
	rest    *rest.Config
	log     logr.Logger
	rota    *rota.Rota
	queue   *keeper.Dispatcher
	guard   *access.Guard
	server  *server.Server
	side    *server.Server // metrics and probes
	health  *health
	metrics *metrics
	period  time.Duration // between two checks of the setup

	process workers.Process
	url     string
	front   http.Handler // set before the server runs
}

// New opens the ports and assembles a dispatcher. c must have been checked. identity identifies the replica. Its zero
// value is right in a Pod. Call Run or Close afterwards.
func New(ctx context.Context, cfg *rest.Config, c *Config, identity rota.Identity, log logr.Logger) (*Dispatcher,
	error,
) {
	d := &Dispatcher{c: c, rest: cfg, log: log.WithName("dispatch"), health: &health{}, period: checkPeriod,
		process: workers.NewProcess()}
	if err := d.assemble(ctx, identity, log); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Dispatcher) assemble(ctx context.Context, identity rota.Identity, log logr.Logger) error {
	var err error
	if d.server, err = server.Listen(ctx, server.Options{
		Address: d.c.Server.Listen, CertFile: d.c.Server.TLS.CertFile, KeyFile: d.c.Server.TLS.KeyFile,
		Connections: d.c.Limits.Connections, Authenticates: true, Logger: d.log,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.front.ServeHTTP(w, r) }),
	}); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	if d.url, err = d.c.Server.advertised(d.server.Addr().Port); err != nil {
		return err
	}
	options := d.c.rota()
	options.Identity, options.Logger = identity, log
	if d.rota, err = rota.New(d.rest, options); err != nil {
		return err
	}
	var kinds []string
	for _, k := range d.c.kinds() {
		kinds = append(kinds, k.Kind.String())
	}
	d.metrics = newMetrics(kinds)
	if d.queue, err = keeper.New(d.rest, d.rota, keeper.Options{
		Kinds: d.c.kinds(), Queue: *d.c.queue(), Address: d.process.At(d.url), Logger: d.log,
		RememberNames: d.c.RememberNames, Resync: time.Duration(d.c.Resync),
		Taken: func(kind string, t time.Duration) { d.metrics.wait.WithLabelValues(kind).Observe(t.Seconds()) },
		Done:  func(kind string, t time.Duration) { d.metrics.work.WithLabelValues(kind).Observe(t.Seconds()) },
	}); err != nil {
		return err
	}
	d.metrics.connected = d.server.Connections
	d.metrics.now, d.metrics.unfollowedKinds = d.queue.Now, d.queue.Unfollowed
	d.metrics.stats = func() []queue.Stats {
		stats, _ := d.queue.Stats()
		return stats
	}
	d.guard, err = access.New(d.rest, access.Options{Audience: d.c.Audience, Limits: d.c.limits(), Logger: d.log})
	if err != nil {
		return err
	}
	d.health.checks = []check{d.health.stage, d.rota.Ready, d.reachable}
	d.health.alive = func() { d.queue.Stats() }
	mux := http.NewServeMux()
	d.health.serve(mux)
	all, err := serve(d.rota.Name().String(), d.rota.Collector(), d.guard.Collector(), d.metrics)
	if err != nil {
		return err
	}
	mux.Handle("/metrics", all)
	if d.side, err = server.Listen(ctx, server.Options{
		Address: d.c.Metrics, Connections: 1000, Handler: mux, Logger: d.log,
	}); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// URL is the URL at which other dispatchers reach this one.
func (d *Dispatcher) URL() string { return d.url }

// Status is the status of the dispatcher's member. The benchmarks, in another module, wait for it.
func (d *Dispatcher) Status() rota.Status { return d.rota.Status() }

// Metrics is the URL of metrics and probes, on this machine.
func (d *Dispatcher) Metrics() string { return fmt.Sprintf("http://localhost:%d", d.side.Addr().Port) }

// Close closes the ports of a Dispatcher that is not running.
func (d *Dispatcher) Close() error {
	var errs []error
	for _, s := range []*server.Server{d.server, d.side} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// Run takes part in the rota and serves workers until ctx ends. Then it leaves: its slots move to other dispatchers as
// the takes in them end, while workers are still served. It may be called once.
func (d *Dispatcher) Run(ctx context.Context) (err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var side sync.WaitGroup
	side.Go(func() {
		if err := d.side.Run(); err != nil {
			fail(fmt.Errorf("metrics: %w: %w", errFailed, err))
		}
	})
	defer side.Wait()
	defer func() { err = errors.Join(err, d.Close()) }()
	self, err := d.prepare(ctx)
	if err != nil {
		return err
	}
	f, err := d.newFront(self)
	if err != nil {
		return err
	}
	d.front = d.metrics.during(f)
	return d.serve(ctx, fail, f)
}

// errFailed is the cause when a part of the dispatcher fails, which ends the rest.
var errFailed = errors.New("the dispatcher failed")

// serve runs all parts. If one ends early, the others end.
func (d *Dispatcher) serve(ctx context.Context, fail context.CancelCauseFunc, f *workers.Front) error {
	d.log.Info("Serving workers", "url", d.url, "listen", d.server.Addr().String())
	var serving, working sync.WaitGroup
	serving.Go(func() { d.watch(ctx) })
	serving.Go(func() {
		if err := d.server.Run(); err != nil {
			fail(fmt.Errorf("%w: %w", errFailed, err))
		}
	})
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	working.Go(func() { d.queue.Run(life) })
	working.Go(f.Run)
	err := d.rota.Run(ctx)
	end()
	working.Wait()
	last, stop := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer stop()
	if err := d.server.Shutdown(last); err != nil {
		d.log.Info("Requests were aborted at shutdown", "cause", err.Error())
	}
	serving.Wait()
	f.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, errFailed) {
		err = errors.Join(cause, err)
	}
	return err
}

func (d *Dispatcher) newFront(self string) (*workers.Front, error) {
	client, err := d.client()
	if err != nil {
		return nil, err
	}
	reports, err := workers.Reports(d.rest, d.rota.Name(), d.rota.Adapt(adapter.Grant()).Table)
	if err != nil {
		return nil, err
	}
	return workers.New(workers.Options{
		Dispatcher: d.queue, Kinds: d.c.kinds(), Guard: trusting{d.guard}, Process: d.process, URL: d.url, Self: self,
		Reports: reports, Client: client, Observe: d.metrics.answered, Logger: d.log,
	})
}

// trusting is a guard that marks connections with a valid token as trusted by the server.
type trusting struct{ *access.Guard }

// Authenticate implements workers.Guard.
func (t trusting) Authenticate(r *http.Request) (access.User, error) {
	user, err := t.Guard.Authenticate(r)
	if err == nil {
		server.Trust(r.Context())
	}
	return user, err
}

// fullFor is how long new connections may wait before the dispatcher is not ready.
const fullFor = 10 * time.Second

// reachable implements check: new workers and other dispatchers can connect.
func (d *Dispatcher) reachable(*http.Request) error {
	c := d.server.Connections()
	if c.Full.IsZero() || time.Since(c.Full) < fullFor {
		return nil
	}
	return fmt.Errorf("new connections have waited for %v: workers have all %d; raise limits.connections, or run more "+
		"dispatchers", time.Since(c.Full).Round(time.Second), c.Limit)
}

// client returns a client for other dispatchers. It rereads the token and the authorities when they change.
func (d *Dispatcher) client() (*http.Client, error) {
	client, err := rest.HTTPClientFor(&rest.Config{
		Host: d.url, BearerTokenFile: d.c.TokenFile,
		TLSClientConfig: rest.TLSClientConfig{CAFile: d.c.Server.TLS.CAFile, ServerName: d.c.Server.TLS.ServerName},
		Proxy:           http.ProxyURL(nil), // dispatchers reach one another directly
	})
	if err != nil {
		return nil, fmt.Errorf("client for other dispatchers: %w", err)
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, nil
}

// prepare waits until the API server answers and this dispatcher has its permissions, and returns its user name. The
// error is one that waiting does not fix.
func (d *Dispatcher) prepare(ctx context.Context) (self string, err error) {
	for begun, delay := time.Now(), 100*time.Millisecond; ; delay = min(2*delay, 5*time.Second) {
		var wrong, late error
		if self, wrong, late = d.examine(ctx); wrong == nil && late == nil {
			return self, nil
		}
		if wrong != nil && time.Since(begun) > patience {
			return "", wrong
		}
		d.health.at(cmp.Or(wrong, late).Error())
		d.log.V(1).Info("Not ready to serve; trying again", "cause", cmp.Or(wrong, late).Error())
		if err := await.Sleep(ctx, delay); err != nil {
			return "", fmt.Errorf("%w; it did not serve yet: %w", context.Cause(ctx), cmp.Or(wrong, late))
		}
	}
}

const (
	// checkPeriod is the time between two checks of the setup of a serving dispatcher.
	checkPeriod = 30 * time.Second
	// maxFailedChecks is the number of failed checks after which the dispatcher is not ready.
	maxFailedChecks = 3
)

// watch keeps checking the setup: a dispatcher that cannot let workers in must not look healthy.
func (d *Dispatcher) watch(ctx context.Context) {
	defer d.health.at("it is leaving")
	d.health.at("")
	for bad := 0; await.Sleep(ctx, d.period) == nil; {
		_, wrong, late := d.examine(ctx)
		problem := cmp.Or(wrong, late)
		switch {
		case ctx.Err() != nil:
		case problem == nil:
			bad = 0
			d.health.at("")
		default:
			if bad++; bad == maxFailedChecks {
				d.log.Error(problem, "Workers cannot be authenticated; this dispatcher is not ready")
			}
			if bad >= maxFailedChecks {
				d.health.at(problem.Error())
			}
		}
	}
}

// examine asks the API server whether this dispatcher is set up correctly. late is set if the API server does not
// answer.
func (d *Dispatcher) examine(ctx context.Context) (self string, wrong, late error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if self, late = d.guard.Self(ctx); late != nil {
		return "", nil, late
	}
	denied, err := permission.Denied(ctx, d.rest, nil, d.needs())
	switch {
	case err != nil:
		return "", nil, err
	case len(denied) > 0:
		return "", &permission.MissingError{Rota: d.c.Name, Missing: denied}, nil
	}
	token, err := os.ReadFile(d.c.TokenFile)
	if err != nil {
		return "", fmt.Errorf("tokenFile: %w", err), nil
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, http.NoBody)
	if err != nil {
		return "", err, nil
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	user, err := d.guard.Authenticate(r)
	var refused *access.Error
	switch {
	case errors.As(err, &refused) && refused.Problem != wire.ProblemUnauthenticated:
		return "", nil, err
	case err != nil:
		return "", fmt.Errorf("tokenFile %s: %w", d.c.TokenFile, err), nil
	case user.Name != self:
		return "", fmt.Errorf("tokenFile %s: the token belongs to %s, but this dispatcher talks to the API server as %s: "+
			"other dispatchers would not trust it; mount a token of its own ServiceAccount", d.c.TokenFile, user.Name,
			self), nil
	}
	return self, nil, nil
}

// needs are the permissions of a dispatcher, without its member's. Kinds that are not served are left out.
func (d *Dispatcher) needs() []permission.Error {
	needs := []permission.Error{
		{Group: authenticationv1.GroupName, Resource: "tokenreviews", Verb: "create"},
		{Group: authorizationv1.GroupName, Resource: "subjectaccessreviews", Verb: "create"},
	}
	for _, k := range d.c.kinds() {
		namespaces := k.Namespaces
		if len(namespaces) == 0 {
			namespaces = []string{""}
		}
		for _, kind := range append([]schema.GroupKind{k.Kind}, k.Owns...) {
			resource, err := d.guard.Resource(kind)
			if err != nil {
				d.log.Info("A kind is not followed yet", "kind", kind.String(), "cause", err.Error())
				continue
			}
			for _, namespace := range namespaces {
				for _, verb := range []string{"list", "watch"} {
					needs = append(needs, permission.Error{
						Namespace: namespace, Group: resource.Group, Resource: resource.Resource, Verb: verb,
					})
				}
			}
		}
	}
	return needs
}
