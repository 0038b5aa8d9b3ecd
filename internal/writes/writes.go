// Package writes sends the writes of reconciles as a member must. A write is sent no later than the member's Lease
// allows (rule R2), counts as in flight in the slots that it changes until it can no longer take effect (R6), and is
// recorded for the slots' next owners (R8).
package writes

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/work"
)

// Env connects Writes to the member. Its functions may be called concurrently and must not block.
type Env struct {
	Share *delivery.Share
	Gate  *gate.Gate
	Log   logr.Logger
	// API is the config of the API server, or nil.
	API *rest.Config
	// ID returns the member's identity. HasJoined reports whether the member has been in the table.
	ID        func() string
	HasJoined func() bool
	// Left returns how long the member may still write, zero or less after its deadline. Now returns the monotonic time.
	Left, Now func() time.Duration
	// Config has the timeouts of writes.
	Config member.Config
	// Long counts the writes that may take longer than WriteTimeout. WantLong asks the member to allow them until a time
	// on the clock of Now. It returns false if there is no member.
	Long     *gate.LongWrites
	WantLong func(until time.Duration) bool
	// Fenced is called for each write that a fence refused, and Late for each that timed out.
	Fenced, Late func()
}

// Writes sends and records the writes of a member. Its methods may be called concurrently.
type Writes struct {
	env  Env
	host string // of the API server, with its port, or ""

	wrapped atomic.Int32 // the number of wrapped transports
	byHand  atomic.Bool  // Wrote was called
	// loggedLate is the time at which a write that timed out was last logged, or 0.
	loggedLate  atomic.Int64
	loggedWhole sync.Map // see reportWhole
	resources   resources
	strays      strays

	impersonated impersonated
	paces        paces
}

// New returns the Writes of a member that has written nothing.
func New(env Env) *Writes { return &Writes{env: env, host: hostOf(env.API)} }

// WrapConfig is Rota.WrapConfig.
func (w *Writes) WrapConfig(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	of := clusterOf(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return w.wrap(next, of) })
	return cfg
}

// WrapTransport is Rota.WrapTransport.
func (w *Writes) WrapTransport(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return w.wrap(next, cluster{})
}

func (w *Writes) wrap(next http.RoundTripper, of cluster) http.RoundTripper {
	w.wrapped.Add(1)
	return &writer{Writes: w, next: next, cluster: of}
}

// Wrapped reports whether a config or a transport was wrapped.
func (w *Writes) Wrapped() bool { return w.wrapped.Load() > 0 }

// Wrote is Rota.Wrote.
func (w *Writes) Wrote(ctx context.Context, kind schema.GroupKind, obj metav1.Object) {
	w.byHand.Store(true)
	by, inFlight := work.AdmittedBy(ctx, w.env.Gate)
	name := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	w.write(kind, name, nil, by, inFlight).Answered(obj)
}

// ByHand reports whether Wrote was called.
func (w *Writes) ByHand() bool { return w.byHand.Load() }
