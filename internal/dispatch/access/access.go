// Package access decides which users may take keys from a dispatcher: the API server reviews bearer tokens, its
// authorizer decides about permissions, and each user has limits on the rate and the number of requests.
package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// User is the sender of a request.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// Error refuses a request. Problem is one of the constants wire.Problem….
type Error struct {
	Problem, Detail string
	// RetryAfter is when to try again, or 0 if that does not help.
	RetryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string { return e.Problem + ": " + e.Detail }

// Options configure a Guard.
type Options struct {
	// Audience is the audience that tokens must have. It is required.
	Audience string
	Limits   Limits
	// Logger gets messages for operators. Default: slog.Default.
	Logger logr.Logger
}

// Limits bound the load that users can cause for the dispatcher and the API server. Zero fields have their defaults.
type Limits struct {
	// Rate is how many requests each user may send per second. Default 1,000. Burst is how many at once. Default 2 * Rate.
	Rate  float64
	Burst int
	// UnderWay is how many requests each user may have in flight, including polls and streams. Default 5,000. Total is the
	// limit for all users. Default 20,000.
	UnderWay, Total int
	// Reviews is how many new tokens per second the API server is asked to review. Default 50. As many again may come from
	// addresses that have sent valid tokens.
	Reviews float64
}

const (
	// remembered is the size of each cache: of tokens, decisions and addresses.
	remembered = 16384
	// reviewTimeout bounds a request to the API server.
	reviewTimeout = 10 * time.Second
	// retrySoon is when to try again if the API server did not answer.
	retrySoon = 2 * time.Second
)

func (l *Limits) setDefaults() {
	l.Rate = cmp.Or(l.Rate, 1000)
	l.Burst = cmp.Or(l.Burst, max(int(2*l.Rate), 1))
	l.UnderWay = cmp.Or(l.UnderWay, 5000)
	l.Total = cmp.Or(l.Total, 20000)
	l.Reviews = cmp.Or(l.Reviews, 50)
}

// Validate returns an error that names the field and the problem. Fields may be 0.
func (l Limits) Validate() error {
	l.setDefaults()
	switch { // also refuses NaN
	case !(l.Rate > 0 && l.Rate <= 1e6):
		return fmt.Errorf("rate %v: must be above 0, and at most 1,000,000 requests a second", l.Rate)
	case l.Burst < 1:
		return fmt.Errorf("burst %d: must be above 0, or no request is let in", l.Burst)
	case l.UnderWay < 1:
		return fmt.Errorf("underWay %d: must be above 0, or no request is let in", l.UnderWay)
	case l.Total < l.UnderWay:
		return fmt.Errorf("total %d: must not be below underWay, which is %d", l.Total, l.UnderWay)
	case !(l.Reviews > 0 && l.Reviews <= 1e6):
		return fmt.Errorf("reviews %v: must be above 0, and at most 1,000,000 a second", l.Reviews)
	}
	return nil
}

// Guard authenticates and authorizes users. Its methods may be called concurrently. Its memory is bounded.
type Guard struct {
	o       Options
	client  kubernetes.Interface
	mapper  meta.ResettableRESTMapper
	reviews *prometheus.CounterVec

	secret    []byte // of the keys of known and rejected
	known     *cache.LRUExpireCache
	rejected  *cache.LRUExpireCache
	unknown   *rate.Limiter // of reviews of new tokens
	renewed   *rate.Limiter // of reviews for addresses that have sent valid tokens
	addresses *cache.LRUExpireCache
	flights   singleflight.Group
	quiet     rate.Sometimes // of logs about an API server that does not answer

	decisions *cache.LRUExpireCache
	resources *cache.LRUExpireCache

	mu    sync.Mutex
	users map[string]*usage
	total int
	swept time.Time
}

// New returns a Guard that asks the API server of cfg.
func New(cfg *rest.Config, o Options) (*Guard, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.RateLimiter = -1, nil // the guard has its own limits
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("access: discovery: %w", err)
	}
	return newGuard(client, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco)), o)
}

func newGuard(client kubernetes.Interface, mapper meta.ResettableRESTMapper, o Options) (*Guard, error) {
	if o.Audience == "" {
		return nil, errors.New("access: Audience is empty: tokens for the API server itself would be accepted, and could " +
			"be stolen")
	}
	if err := o.Limits.Validate(); err != nil {
		return nil, fmt.Errorf("access: limits: %w", err)
	}
	o.Limits.setDefaults()
	if o.Logger.GetSink() == nil {
		o.Logger = logr.FromSlogHandler(slog.Default().Handler())
	}
	g := &Guard{
		o: o, client: client, mapper: mapper,
		reviews: newReviews(), secret: make([]byte, 32),
		known: cache.NewLRUExpireCache(remembered), rejected: cache.NewLRUExpireCache(remembered),
		unknown:   rate.NewLimiter(rate.Limit(o.Limits.Reviews), max(int(4*o.Limits.Reviews), 1)),
		renewed:   rate.NewLimiter(rate.Limit(o.Limits.Reviews), max(int(4*o.Limits.Reviews), 1)),
		addresses: cache.NewLRUExpireCache(remembered), decisions: cache.NewLRUExpireCache(remembered),
		resources: cache.NewLRUExpireCache(remembered),
		quiet:     rate.Sometimes{First: 1, Interval: 10 * time.Second},
		users:     map[string]*usage{},
	}
	_, _ = rand.Read(g.secret) // never fails
	for _, review := range []string{reviewToken, reviewAccess} {
		for _, outcome := range []string{outcomeOK, outcomeRefused, outcomeFailed} {
			g.reviews.WithLabelValues(review, outcome)
		}
	}
	g.reviews.WithLabelValues(reviewToken, outcomeLimited)
	return g, nil
}

func newReviews() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rota_dispatch_reviews_total", Help: "Questions to the API server about tokens or access: ok, " +
			"refused, failed (no answer), or limited (not asked: too many new tokens).",
	}, []string{"review", "outcome"})
}

// Metrics returns the metrics of a new Guard.
func Metrics() prometheus.Collector { return newReviews() }

// Values of the labels of rota_dispatch_reviews_total.
const (
	reviewToken, reviewAccess = "token", "access"

	outcomeOK, outcomeRefused, outcomeFailed, outcomeLimited = "ok", "refused", "failed", "limited"
)

// Collector returns the Guard's metrics.
func (g *Guard) Collector() prometheus.Collector { return g.reviews }

// Audience is the audience that tokens must have.
func (g *Guard) Audience() string { return g.o.Audience }

// Self asks the API server for the user name of this process.
func (g *Guard) Self(ctx context.Context) (username string, err error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := g.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask the API server who this dispatcher is: %w", err)
	}
	if review.Status.UserInfo.Username == "" {
		return "", errors.New("ask the API server who this dispatcher is: it does not say")
	}
	return review.Status.UserInfo.Username, nil
}

// failed reports that the API server could not be asked.
func (g *Guard) failed(review string, err error) {
	g.reviews.WithLabelValues(review, outcomeFailed).Inc()
	g.quiet.Do(func() { g.o.Logger.Error(err, "Requests are refused, since the API server cannot review them") })
}
