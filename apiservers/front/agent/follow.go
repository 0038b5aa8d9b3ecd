package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rota-dev/rota/apiservers/front"
)

// source is a client for EndpointSlices, with the result of its last request: nil if a watch was opened.
type source struct {
	client kubernetes.Interface
	heard  outcomes
}

// connect waits for credentials. It returns nil if ctx ends first.
func (a *agent) connect(ctx context.Context) *source {
	logged := ""
	for {
		config, digest, err := a.readCredentials()
		if err == nil {
			s := &source{heard: make(outcomes, 1)}
			config.Wrap(s.heard.of)
			if s.client, err = kubernetes.NewForConfig(config); err == nil {
				a.credentials = digest
				return s
			}
		}
		if text := err.Error(); text != logged {
			a.log("there are no credentials yet to read EndpointSlices with: %v", err)
			logged = text
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
		a.tick(ctx)
	}
}

// readCredentials reads the kubeconfig, and makes a digest of everything in it that client-go reads only once.
// client-go rereads certificates in separate files, and tokens.
func (a *agent) readCredentials() (*rest.Config, string, error) {
	text, err := os.ReadFile(a.kubeconfig)
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", a.kubeconfig)
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig %s: %w", a.kubeconfig, err)
	}
	config = throughFront(config, a.front)
	all := sha256.New()
	_, _ = fmt.Fprintf(all, "%d %s", len(text), text) // a hash takes everything
	if config.CAFile != "" {
		authorities, err := os.ReadFile(config.CAFile)
		if err != nil {
			return nil, "", fmt.Errorf("authorities for kubeconfig %s: %w", a.kubeconfig, err)
		}
		_, _ = all.Write(authorities)
	}
	return config, hex.EncodeToString(all.Sum(nil)), nil
}

// throughFront returns a configuration that sends requests through the front, or else to a static server. The TLS peer
// is the API server, whose certificate contains the front's server name, not the address that is dialed.
func throughFront(config *rest.Config, f *front.Front) *rest.Config {
	c := rest.CopyConfig(config)
	c.Host = "https://" + f.ServerName
	c.ServerName = f.ServerName
	c.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // no proxy
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

// outcomes holds the last unread outcome, which is nil for a watch that was opened. Its capacity is 1.
type outcomes chan error

func (o outcomes) report(err error) {
	for {
		select {
		case o <- err:
			return
		default:
		}
		select {
		case <-o: //nolint:errcheck // it is outdated
		default:
		}
	}
}

// of reports watches that are opened, since a list may be allowed where a watch is not. Errors come from the reflector,
// which knows the API server's message.
func (o outcomes) of(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		watches, _ := strconv.ParseBool(r.URL.Query().Get("watch"))
		if err == nil && response.StatusCode == http.StatusOK && watches {
			o.report(nil)
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// follow follows the slices until ctx ends or the credentials change.
func (a *agent) follow(ctx context.Context, s *source) error {
	ctx, cancel := context.WithCancel(ctx)
	namespace, name, _ := strings.Cut(a.front.Service, "/")
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = discoveryv1.LabelServiceName + "=" + name
		}))
	defer factory.Shutdown()
	defer cancel()
	all := factory.Discovery().V1().EndpointSlices()
	informer, changed := all.Informer(), make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		s.heard.report(err)
	})
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { signal() }, UpdateFunc: func(any, any) { signal() }, DeleteFunc: func(any) { signal() },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	tick := time.NewTicker(again)
	defer tick.Stop()
	synced := false
	for {
		var settled <-chan time.Time
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.heard:
			a.hear(err)
			continue
		case <-tick.C:
			a.tick(ctx)
			if _, digest, err := a.readCredentials(); err == nil && digest != a.credentials {
				a.log("%s has changed: EndpointSlices are read with the new credentials", a.kubeconfig)
				return nil
			}
			if !informer.HasSynced() || synced {
				continue
			}
			settled = time.After(0) // there may be no slices at all
		case <-changed:
			settled = time.After(settle)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-settled:
		}
		select { // handle what came meanwhile
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
		a.update(ctx, serversOf(list, a.front.PortName))
	}
}

// gist is an error's text without the parts that differ between attempts: ports and names of temporary files.
func gist(err error) string { return digits.ReplaceAllString(err.Error(), "0") }

var digits = regexp.MustCompile(`[0-9]+`)

// hear logs once why the slices cannot be followed, and when they are followed again.
func (a *agent) hear(err error) {
	if err == nil {
		if a.unfollowed != "" {
			a.log("the EndpointSlices of service %s are followed again", a.front.Service)
		}
		a.unfollowed = ""
		return
	}
	if text := gist(err); text != a.unfollowed {
		a.unfollowed = text
		a.log("the EndpointSlices of service %s cannot be followed: %v", a.front.Service, err)
	}
}

// missing logs once if the Service has nothing that the front could use: its name or its port's name may be wrong.
func (a *agent) missing(list []*discoveryv1.EndpointSlice) {
	text := lacking(list, a.front.Service, a.front.PortName)
	if text != a.lacks && text != "" {
		a.log("%s", text)
	}
	a.lacks = text
}
