// Package agent keeps the servers of a front current, from the EndpointSlices of the API servers' Service. It runs
// beside the proxy on each host.
//
// It asks for the slices through the front itself, and through the static servers if the front does not answer. Without
// any answer the proxy has the static servers, and those that were known last. What it learns it first writes to disk.
package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/proxy"
)

const (
	// settle is how long changes are collected: a slice is often written several times in a row.
	settle = 100 * time.Millisecond
	// again is the time between two looks at HAProxy: for servers that are gone but for their connections, and in case
	// it did not answer.
	again = 2 * time.Second
	// reloadLimit is the longest time between two reloads, when the first did not help. It begins with again.
	reloadLimit = time.Minute
)

// Options are the options of Run.
type Options struct {
	// Dir is the folder with front.yaml.
	Dir string
	// Config returns the credentials with which to read EndpointSlices. Their server is not used. Run calls it again
	// after an error: before a host has joined its cluster it has none.
	Config func() (*rest.Config, error)
	// Log gets a line for each event. It is called from one goroutine at a time.
	Log func(format string, args ...any)
}

// agent is one run. All but next belongs to one goroutine.
type agent struct {
	front   *proxy.Front
	dir     string
	log     func(format string, args ...any)
	haproxy *running // nil with Envoy

	servers []proxy.Server
	// stale means that HAProxy has not taken the list.
	stale bool
	// certificates is a digest of the files that the proxy reads.
	certificates string
	// After a reload there is none before noReload, and pause is how long that is the next time.
	noReload time.Time
	pause    time.Duration

	said string // the last error, so that it is told once
	left string // what Admit refused

	unread string // why certificates could not be read
	lacks  string // what the Service lacks
}

// Run keeps the servers of a front current until ctx ends, and returns nil then. It returns an error only if it cannot
// begin, or cannot write.
func Run(ctx context.Context, o Options) error {
	path := filepath.Join(o.Dir, proxy.FrontFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the front's description: %w", err)
	}
	f, err := proxy.ParseFront(path, text)
	if err != nil {
		return err
	}
	if err := f.Circle(ownAddresses()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	a := &agent{front: f, dir: o.Dir, log: o.Log}
	if f.Proxy == proxy.HAProxy {
		a.haproxy = &running{front: f, admin: filepath.Join(f.RunDir, proxy.AdminSocket), log: o.Log}
	}
	servers, err := readKnown(o.Dir)
	if err != nil {
		a.log("%v", err)
	}
	if err := a.first(ctx, servers); err != nil {
		return err
	}
	client, err := a.connect(ctx, o.Config)
	if client == nil || err != nil {
		return err
	}
	return a.follow(ctx, client)
}

// connect waits for credentials. It returns nil if ctx ends before.
func (a *agent) connect(ctx context.Context, config func() (*rest.Config, error)) (kubernetes.Interface, error) {
	said := ""
	for {
		c, err := config()
		if err == nil {
			var client kubernetes.Interface
			if client, err = kubernetes.NewForConfig(throughFront(c, a.front)); err == nil {
				return client, nil
			}
		}
		if text := err.Error(); text != said {
			a.log("there are no credentials yet to read EndpointSlices with: %v", err)
			said = text
		}
		select {
		case <-ctx.Done():
			return nil, nil //nolint:nilnil // the end
		case <-time.After(again):
		}
		if err := a.tick(ctx); err != nil {
			return nil, err
		}
	}
}

// throughFront returns a configuration with which requests go through the front, or else to a static server. TLS is
// with the API server, whose certificate has the front's server name, and not the address that was dialed.
func throughFront(config *rest.Config, f *proxy.Front) *rest.Config {
	c := rest.CopyConfig(config)
	c.Host = "https://" + f.ServerName
	c.ServerName = f.ServerName
	c.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } //nolint:nilnil // no proxy
	if c.CAFile == "" && len(c.CAData) == 0 {
		c.CAFile = f.CA
	}
	c.UserAgent = "rota-front-agent"
	addresses := append([]string{f.Local()}, f.Static...)
	c.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		var failed []error
		for _, address := range addresses {
			conn, err := dialer.DialContext(ctx, "tcp", address)
			if err == nil {
				return conn, nil
			}
			failed = append(failed, err)
		}
		return nil, errors.Join(failed...)
	}
	return c
}

// first writes what is known from before, so that the proxy can start.
func (a *agent) first(ctx context.Context, servers []proxy.Server) error {
	a.servers = a.admit(servers)
	a.readCertificates()
	changed, err := a.write()
	if err != nil {
		return err
	}
	if a.front.Proxy == proxy.Envoy {
		if err := a.bootstrap(); err != nil {
			return err
		}
	}
	a.log("the front has %d servers known from before, and %d static ones", len(a.servers), len(a.front.Static))
	a.stale = changed
	return a.apply(ctx)
}

// bootstrap writes envoy.yaml, which Envoy reads when it starts.
func (a *agent) bootstrap() error {
	text, err := a.front.Envoy()
	if err != nil {
		return err
	}
	changed, err := replace(filepath.Join(a.dir, proxy.EnvoyFile), text)
	if changed {
		a.log("%s has changed: restart Envoy, so that it reads it", proxy.EnvoyFile)
	}
	return err
}

// readCertificates reports whether the files that the proxy reads are others than before. One that cannot be read is
// as before: HAProxy would not take it either.
func (a *agent) readCertificates() (changed bool) {
	all := sha256.New()
	for _, path := range []string{a.front.CA, a.front.Client} {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			if text := err.Error(); text != a.unread {
				a.log("the proxy's certificates: %v", err)
				a.unread = text
			}
			return false
		}
		_, _ = fmt.Fprintf(all, "%d %s", len(text), text) // a hash takes everything
	}
	was := a.certificates
	a.unread = ""
	a.certificates = hex.EncodeToString(all.Sum(nil))
	return was != a.certificates
}

// follow follows the slices.
func (a *agent) follow(ctx context.Context, client kubernetes.Interface) error {
	namespace, name, _ := strings.Cut(a.front.Service, "/")
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = discoveryv1.LabelServiceName + "=" + name
		}))
	all := factory.Discovery().V1().EndpointSlices()
	informer, changed := all.Informer(), make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	failed := make(chan error, 1)
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		select {
		case failed <- err:
		default:
		}
	})
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { signal() }, UpdateFunc: func(any, any) { signal() }, DeleteFunc: func(any) { signal() },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	tick := time.NewTicker(again)
	defer tick.Stop()
	synced := false
	for {
		var settled <-chan time.Time
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			a.tell(fmt.Errorf("the EndpointSlices of service %s cannot be followed: %w", a.front.Service, err))
			continue
		case <-tick.C:
			if err := a.tick(ctx); err != nil {
				return err
			}
			if !informer.HasSynced() || synced {
				continue
			}
			settled = time.After(0) // there may be none at all
		case <-changed:
			settled = time.After(settle)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-settled:
		}
		select { // what came meanwhile is seen now
		case <-changed:
		default:
		}
		if !informer.HasSynced() {
			signal()
			continue
		}
		synced = true
		list, err := all.Lister().EndpointSlices(namespace).List(labels.Everything())
		if err != nil {
			return err
		}
		a.missing(list)
		if err := a.update(ctx, serversOf(list, a.front.PortName)); err != nil {
			return err
		}
	}
}

// missing says once if the Service has nothing that the front could use: its name may be wrong, or that of its port.
func (a *agent) missing(list []*discoveryv1.EndpointSlice) {
	text := lacking(list, a.front.Service, a.front.PortName)
	if text != a.lacks && text != "" {
		a.log("%s", text)
	}
	a.lacks = text
}

// update takes a list from the API server.
func (a *agent) update(ctx context.Context, servers []proxy.Server) error {
	servers = a.admit(servers)
	if slices.Equal(servers, a.servers) {
		return nil
	}
	a.log("service %s has %d servers: %v", a.front.Service, len(servers), servers)
	a.servers, a.stale = servers, true
	// The list first: who starts after a crash here writes the configuration from it.
	if err := writeKnown(a.dir, servers); err != nil {
		return err
	}
	if _, err := a.write(); err != nil {
		return err
	}
	return a.apply(ctx)
}

// tick is for what nobody tells: certificates that were renewed, and HAProxy that started anew.
func (a *agent) tick(ctx context.Context) error {
	if a.readCertificates() {
		if _, err := a.write(); err != nil {
			return err
		}
		if a.haproxy == nil {
			a.log("certificates have changed: restart Envoy, so that it reads them")
		}
	}
	return a.apply(ctx)
}

// admit leaves out what the front cannot use, and says so.
func (a *agent) admit(servers []proxy.Server) []proxy.Server {
	admitted, refused := a.front.Admit(servers, ownAddresses())
	err := errors.Join(refused...)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != a.left && err != nil {
		a.log("%v", err)
	}
	a.left = text
	return admitted
}

// write writes the file that changes with the servers.
func (a *agent) write() (changed bool, err error) {
	file, err := a.front.Current(a.servers, a.certificates)
	if err != nil {
		return false, err
	}
	return replace(filepath.Join(a.dir, file.Path), file.Text)
}

// apply brings a running HAProxy to the list. Envoy has read the file by itself.
func (a *agent) apply(ctx context.Context) error {
	if a.haproxy == nil {
		return nil
	}
	err := a.haproxy.apply(ctx, a.servers, a.front.Description(a.certificates))
	var op *net.OpError
	switch {
	case err == nil:
		a.stale, a.said, a.pause = false, "", 0
		return nil
	case errors.As(err, &op) && op.Op == "dial" || ctx.Err() != nil:
		// It does not run, and will read the file when it starts.
	case a.stale || errors.Is(err, errOther):
		if time.Now().Before(a.noReload) {
			return nil // it takes a while until the new process answers
		}
		a.pause = min(max(2*a.pause, again), reloadLimit)
		a.noReload = time.Now().Add(a.pause)
		// Somebody may have put another file in its place.
		if _, err := a.write(); err != nil {
			return err
		}
		if failed := a.haproxy.reload(ctx); failed != nil {
			err = errors.Join(err, fmt.Errorf("reload: %w", failed))
			break
		}
		a.stale = false
		err = fmt.Errorf("HAProxy was reloaded: %w", err)
	}
	if ctx.Err() == nil {
		a.tell(err)
	}
	return nil
}

// tell logs an error unless it was the last one.
func (a *agent) tell(err error) {
	if text := err.Error(); text != a.said {
		a.said = text
		a.log("%v", err)
	}
}

// ownAddresses are those of this host.
func ownAddresses() []netip.Addr {
	all, _ := net.InterfaceAddrs()
	var own []netip.Addr
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, prefix.Addr().Unmap())
		}
	}
	return own
}
