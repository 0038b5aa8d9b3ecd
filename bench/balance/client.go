package balance

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/rota-dev/rota/internal/await"
)

const (
	namespace = "default"
	object    = "balance"
)

// counts are what clients know of who answers them.
type counts struct {
	mu       sync.Mutex
	requests map[string]int // answered, by server
	watches  map[string]int // open, by server
	failed   int
	last     error
}

func newCounts() *counts { return &counts{requests: map[string]int{}, watches: map[string]int{}} }

// A share is what each server has at a moment, or had in a time.
type share map[string]int

func (c *counts) now() (requests, watches share, failed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	requests, watches = share{}, share{}
	for name, n := range c.requests {
		requests[name] = n
	}
	for name, n := range c.watches {
		watches[name] = n
	}
	return requests, watches, c.failed
}

// A client has a connection of its own, and on it a watch and requests, as a controller has.
type client struct {
	counts *counts
	set    *kubernetes.Clientset
	// lifetime of a watch; 0 means what client-go asks for, 5 to 10 minutes.
	lifetime time.Duration
	// every is the time between two requests, on average.
	every time.Duration
}

func newClient(config *rest.Config, c *counts, o Options) (*client, error) {
	config = rest.CopyConfig(config)
	// client-go shares connections between configurations that are alike; a function of its own makes one different.
	config.Dial = (&net.Dialer{}).DialContext
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counter{next, c} })
	set, err := kubernetes.NewForConfig(config)
	return &client{counts: c, set: set, lifetime: o.WatchLifetime, every: o.Every}, err
}

// run watches and sends requests until ctx ends.
func (c *client) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	maps := c.set.CoreV1().ConfigMaps(namespace)
	source := cache.NewFilteredListWatchFromClient(c.set.CoreV1().RESTClient(), "configmaps", namespace,
		func(o *metav1.ListOptions) {
			if c.lifetime > 0 && o.TimeoutSeconds != nil {
				seconds := int64(max(1, c.lifetime.Seconds()*(1+rand.Float64()))) // as client-go does with its own
				o.TimeoutSeconds = &seconds
			}
		})
	reflector := cache.NewReflectorWithOptions(source, &corev1.ConfigMap{}, cache.NewStore(cache.MetaNamespaceKeyFunc),
		cache.ReflectorOptions{})
	quiet := klog.NewContext(ctx, logr.Discard()) // it logs each watch that was cut
	wg.Go(func() { reflector.RunWithContext(quiet) })
	for await.Sleep(ctx, time.Duration(float64(c.every)*2*rand.Float64())) == nil {
		_, err := maps.Get(ctx, object, metav1.GetOptions{})
		if err != nil && ctx.Err() == nil {
			c.counts.mu.Lock()
			c.counts.failed++
			c.counts.last = err
			c.counts.mu.Unlock()
		}
	}
}

// A counter notes which server answers.
type counter struct {
	next   http.RoundTripper
	counts *counts
}

func (c *counter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	if err != nil || resp.TLS == nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	server := resp.TLS.PeerCertificates[0].Subject.CommonName
	c.counts.mu.Lock()
	defer c.counts.mu.Unlock()
	if query := req.URL.Query(); query.Get("watch") == "" {
		c.counts.requests[server]++
		return resp, nil
	}
	c.counts.watches[server]++
	resp.Body = &watchBody{ReadCloser: resp.Body, end: sync.OnceFunc(func() {
		c.counts.mu.Lock()
		defer c.counts.mu.Unlock()
		c.counts.watches[server]--
	})}
	return resp, nil
}

// A watchBody tells when a watch ends.
type watchBody struct {
	io.ReadCloser
	end func()
}

func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *watchBody) Close() error {
	b.end()
	return b.ReadCloser.Close()
}
