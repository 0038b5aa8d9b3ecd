package labeller

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// pollPeriod is how often the labeller checks its permission. It notices a change within this time.
const pollPeriod = 250 * time.Millisecond

// Labeller labels objects. Its methods may be called concurrently.
type Labeller struct {
	opts   Options
	http   *http.Client
	config *rest.Config
	reads  metadata.Interface
	writes rest.Interface
	pace   *pace
	places chan struct{} // one for each patch in flight
	fixes  fixes
	stats  counters
	// refusals are the refusals of this tenure and of fixes.
	refusals refusals
}

// Stats counts the labeller's operations since New.
type Stats struct {
	// Patched objects got the right label, or had it when the patch arrived.
	Patched uint64
	// Gone objects were deleted before the patch arrived. Conflicts are patches that lost to other writers and are sent
	// again.
	Gone, Conflicts uint64
	// Throttled are patches answered by 429. They are sent again, no sooner than the server asked for.
	Throttled uint64
	// Failures are all other failed patches.
	Failures uint64
	// Scanned is the number of objects that scans looked at. Lists and Watches count starts, and Scans completed scans.
	Scanned, Lists, Watches, Scans uint64
	// Refused calls of Fix found the queue full.
	Refused uint64
}

type counters struct {
	patched, gone, conflicts, throttled, failures, scanned, lists, watches, scans, refused atomic.Uint64
}

// New returns a labeller. It copies cfg and uses the credentials, proxy, TLS settings and transport wrappers of the
// copy. It has its own rate limits, timeout and compression. New sends no request.
func New(cfg *rest.Config, opts Options) (*Labeller, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.RateLimiter, cfg.Timeout = -1, nil, 0
	cfg.DisableCompression = true // compressing costs the API server more time than the rest of a list
	if cfg.UserAgent == "" {
		cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	cfg.UserAgent += " " + FieldManager
	l := &Labeller{
		opts: opts, config: metadata.ConfigFor(cfg),
		pace: newPace(opts.QPS, opts.Burst), places: make(chan struct{}, opts.Concurrency),
		fixes: fixes{queued: map[target]struct{}{}, wake: make(chan struct{}, 1)},
	}
	if l.http, err = rest.HTTPClientFor(l.config); err == nil {
		l.reads, err = metadata.NewForConfigAndClient(l.config, l.http)
	}
	if err == nil {
		l.writes, err = newWrites(l.config, l.http)
	}
	if err != nil {
		return nil, fmt.Errorf("labeller: %w", err)
	}
	return l, nil
}

// newWrites returns a client for patches. The metadata client would retry a throttled request inside a batch, and the
// other patches would not slow down.
func newWrites(cfg *rest.Config, client *http.Client) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.UnversionedRESTClientForConfigAndClient(cfg, client)
}

// Stats returns the current counts.
func (l *Labeller) Stats() Stats {
	c := &l.stats
	return Stats{
		Patched: c.patched.Load(), Gone: c.gone.Load(), Conflicts: c.conflicts.Load(), Throttled: c.throttled.Load(),
		Failures: c.failures.Load(),
		Scanned:  c.scanned.Load(), Lists: c.lists.Load(), Watches: c.watches.Load(), Scans: c.scans.Load(),
		Refused: c.refused.Load(),
	}
}

// Run works until ctx ends, then returns nil. It fixes labels reported by Fix. While Options.Permit allows it, it also
// searches for objects to label. It returns an error only at the start, before it writes anything, if permissions are
// missing; the error contains a permission.Error for each. If a permission is withdrawn later, Run reports that and
// waits. Run may be called again only after it has returned.
func (l *Labeller) Run(ctx context.Context) error {
	if err := l.Check(ctx); err != nil {
		return err
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { l.fixLoop(ctx) })
	for {
		if l.permitted(ctx) {
			l.tenure(ctx)
		}
		if !sleep(ctx, pollPeriod) {
			return nil
		}
	}
}

func (l *Labeller) permitted(ctx context.Context) bool {
	_, leave, ok := l.opts.Permit(ctx)
	if ok {
		leave()
	}
	return ok
}

// tenure works until ctx ends or the permission is withdrawn.
func (l *Labeller) tenure(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	t := &tenure{l: l, end: end}
	defer l.refusals.clear() // another labeller will run into them
	var group sync.WaitGroup
	defer group.Wait()
	scopes := l.scopes()
	t.listing.Add(len(scopes))
	for _, s := range scopes {
		group.Go(func() { t.follow(ctx, s) })
	}
	if l.opts.ScanPeriod > 0 {
		group.Go(func() { t.scanLoop(ctx) })
	}
	for sleep(ctx, pollPeriod) {
		if !l.permitted(ctx) {
			return
		}
	}
}

// tenure is the time during which the labeller is permitted.
type tenure struct {
	l   *Labeller
	end context.CancelFunc
	// listing counts the scopes whose first list has not ended. A scan before that would find the same objects.
	listing sync.WaitGroup
}

// enter calls Options.Permit. A refusal ends the tenure.
func (t *tenure) enter(ctx context.Context) (context.Context, func(), bool) {
	batch, leave, ok := t.l.opts.Permit(ctx)
	if !ok {
		t.end()
	}
	return batch, leave, ok
}

// scope is a resource in one namespace, or in all.
type scope struct {
	resource  schema.GroupVersionResource
	namespace string
}

// String describes the scope for errors.
func (s scope) String() string {
	if s.namespace == "" {
		return s.resource.GroupResource().String()
	}
	return fmt.Sprintf("%s in namespace %s", s.resource.GroupResource(), s.namespace)
}

func (l *Labeller) scopes() []scope {
	var all []scope
	for _, r := range l.opts.Resources {
		for _, ns := range l.opts.Namespaces {
			all = append(all, scope{r, ns})
		}
	}
	return all
}
