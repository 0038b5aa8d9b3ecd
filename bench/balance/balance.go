package balance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/controlplane"
)

// A Remedy is what is done after a scale-up.
type Remedy string

// Remedies.
const (
	Nothing Remedy = "nothing"
	// Cut has the balancer end the connections of the old servers, one server after the other.
	Cut Remedy = "cut"
	// Restart ends the old servers as the kubelet does, and starts them again, one after the other.
	Restart Remedy = "restart"
)

// Options say what to measure.
type Options struct {
	// Before and After are how many API servers there are, 1 ≤ Before < After.
	Before, After int
	// Clients have a connection, a watch, and a request in each Every on average.
	Clients int
	Every   time.Duration
	// Goaway is the API servers' --goaway-chance, at most 0.02.
	Goaway float64
	Remedy Remedy
	// WatchLifetime is the least time that a watch lasts, and half of the longest; 0 means client-go's own 5 minutes.
	WatchLifetime time.Duration
	// Settle is how long clients run before the scale-up, For how long they are observed after it, and Window the last
	// part of it, whose requests are counted.
	Settle, For, Window time.Duration
	// Enough, if set, ends the observation early.
	Enough func(Result) bool
	// Log gets what happens; nil means nothing does.
	Log io.Writer
}

// A Result is how it was after the time.
type Result struct {
	Options Options
	Servers []string // the old ones first
	// Requests were answered in the window. Watches are open at its end.
	Requests, Watches share
	// BeforeWatches are those open before the scale-up.
	BeforeWatches share
	// Sent and Failed are all requests after the scale-up, and those that got no good answer.
	Sent, Failed int
	LastError    error
}

// Moved returns the share of requests and of watches at the servers that came later, from 0 to 1.
func (r Result) Moved() (requests, watches float64) {
	part := func(s share) float64 {
		all, moved := 0, 0
		for i, name := range r.Servers {
			all += s[name]
			if i >= r.Options.Before {
				moved += s[name]
			}
		}
		return float64(moved) / float64(max(1, all))
	}
	return part(r.Requests), part(r.Watches)
}

// Run measures once. ctx ends it early, with an error.
func Run(ctx context.Context, o Options) (r Result, err error) {
	if o.Before < 1 || o.After <= o.Before || o.Clients < 1 || o.Every <= 0 {
		return r, fmt.Errorf("from %d to %d API servers with %d clients: nothing to measure", o.Before, o.After, o.Clients)
	}
	dir, err := os.MkdirTemp("", "rota-balance-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	w := &world{o: o, counts: newCounts()}
	defer w.end()
	if err := w.start(ctx, c, dir); err != nil {
		return r, err
	}
	return w.measure(ctx, c)
}

// A world is what runs in a measurement.
type world struct {
	o        Options
	servers  []*server
	balancer *balancer
	counts   *counts
}

func (w *world) say(format string, args ...any) {
	if w.o.Log != nil {
		_, _ = fmt.Fprintf(w.o.Log, format+"\n", args...)
	}
}

func (w *world) start(ctx context.Context, c *controlplane.ControlPlane, dir string) error {
	for i := range w.o.After {
		s, err := newServer(ctx, c, dir, fmt.Sprintf("server-%d", i+1), P256, w.o.Goaway)
		if err != nil {
			return err
		}
		if err := s.start(); err != nil {
			return err
		}
		w.servers = append(w.servers, s)
	}
	for _, s := range w.servers {
		if err := s.ready(ctx); err != nil {
			return err
		}
	}
	var err error
	w.balancer, err = startBalancer(ctx, dir, w.servers)
	return err
}

func (w *world) end() {
	if w.balancer != nil {
		w.balancer.run.Kill()
	}
	for _, s := range w.servers {
		s.kill()
	}
}

func (w *world) measure(ctx context.Context, c *controlplane.ControlPlane) (r Result, err error) {
	set, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return r, err
	}
	_, err = set.CoreV1().ConfigMaps(namespace).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: object}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return r, err
	}
	for _, s := range w.servers[:w.o.Before] {
		if err := w.balancer.enable(ctx, s.name); err != nil {
			return r, err
		}
		r.Servers = append(r.Servers, s.name)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	config := c.Config()
	config.Host = "https://" + w.balancer.address
	for range w.o.Clients {
		client, err := newClient(config, w.counts, w.o)
		if err != nil {
			return r, err
		}
		wg.Go(func() { client.run(ctx) })
	}
	if err := w.settled(ctx); err != nil {
		return r, err
	}
	r.Options = w.o
	var sentBefore share
	var failedBefore int
	sentBefore, r.BeforeWatches, failedBefore = w.counts.now()
	w.say("before: watches %v", r.BeforeWatches)

	for _, s := range w.servers[w.o.Before:] {
		if err := w.balancer.enable(ctx, s.name); err != nil {
			return r, err
		}
		r.Servers = append(r.Servers, s.name)
	}
	remedied := make(chan error, 1)
	wg.Go(func() { remedied <- w.remedy(ctx) })
	begin := time.Now()
	for {
		windowBegin, _, _ := w.counts.now()
		if err := await.Sleep(ctx, w.o.Window); err != nil {
			return r, err
		}
		requests, watches, failed := w.counts.now()
		r.Requests, r.Watches, r.Failed = minus(requests, windowBegin), watches, failed-failedBefore
		r.Sent = sum(minus(requests, sentBefore)) + r.Failed
		w.say("after %.0f s: requests %v, watches %v", time.Since(begin).Seconds(), r.Requests, r.Watches)
		if time.Since(begin)+w.o.Window/2 >= w.o.For || w.o.Enough != nil && w.o.Enough(r) {
			break
		}
	}
	w.counts.mu.Lock()
	r.LastError = w.counts.last
	w.counts.mu.Unlock()
	select {
	case err := <-remedied:
		return r, err
	case <-ctx.Done():
		return r, ctx.Err()
	case <-time.After(readyLimit):
		return r, fmt.Errorf("the remedy %s has not ended", w.o.Remedy)
	}
}

// settled returns when every client has a watch, and then some time has gone.
func (w *world) settled(ctx context.Context) error {
	err := await.Until(ctx, 100*time.Millisecond, readyLimit, func() string {
		_, watches, _ := w.counts.now()
		if n := sum(watches); n < w.o.Clients {
			return fmt.Sprintf("%d of %d clients have a watch", n, w.o.Clients)
		}
		return ""
	})
	if err != nil {
		return err
	}
	return await.Sleep(ctx, w.o.Settle)
}

func (w *world) remedy(ctx context.Context) error {
	for _, s := range w.servers[:w.o.Before] {
		var err error
		switch w.o.Remedy {
		case Cut:
			// The new servers have to be up in the balancer's eyes first.
			if err = await.Sleep(ctx, 2*time.Second); err == nil {
				err = w.balancer.cut(ctx, s.name)
			}
		case Restart:
			err = s.restart(ctx)
		default:
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func minus(a, b share) share {
	out := share{}
	for name, n := range a {
		out[name] = n - b[name]
	}
	return out
}

func sum(s share) int {
	n := 0
	for _, v := range s {
		n += v
	}
	return n
}

// percent writes the shares of all servers, old ones first.
func (r Result) percent(s share) string {
	all := float64(max(1, sum(s)))
	parts := make([]string, 0, len(r.Servers))
	for _, name := range r.Servers {
		parts = append(parts, fmt.Sprintf("%.0f", 100*float64(s[name])/all))
	}
	return strings.Join(parts, " ")
}

// Print writes results as a table in Markdown.
func Print(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	_, _ = fmt.Fprintln(t, "| goaway-chance\t| remedy\t| watches last\t| requests, % per server\t"+
		"| watches, % per server\t| failed requests\t|")
	_, _ = fmt.Fprintln(t, "| ---:\t| ---\t| ---\t| ---\t| ---\t| ---:\t|")
	for _, r := range results {
		lifetime := "5 to 10 min"
		if l := r.Options.WatchLifetime; l > 0 {
			lifetime = fmt.Sprintf("%.0f to %.0f s", l.Seconds(), 2*l.Seconds())
		}
		_, _ = fmt.Fprintf(t, "| %v\t| %s\t| %s\t| %s\t| %s\t| %d of %d\t|\n", r.Options.Goaway, r.Options.Remedy, lifetime,
			r.percent(r.Requests), r.percent(r.Watches), r.Failed, r.Sent)
	}
	return t.Flush()
}
