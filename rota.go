package rota

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/engine"
)

// Rota is this process's member of a rota. Create it with New. Its methods may be called concurrently.
type Rota struct{ engine *engine.Engine }

// New checks the options and returns a Rota. It does no I/O; Run does. With Options.Solo cfg may be nil, for programs
// that use fake clients.
func New(cfg *rest.Config, opts Options) (*Rota, error) {
	e, err := engine.New(cfg, opts.engine())
	if err != nil {
		return nil, err
	}
	return &Rota{e}, nil
}

// Name returns the rota's namespace and name.
func (r *Rota) Name() types.NamespacedName {
	return r.engine.Name()
}

// ID returns the member's identity, which is new each time it joins. It is empty before Run.
func (r *Rota) ID() string {
	return r.engine.ID()
}

// Owns reports whether this member owns the object's slot and the slot is open, so that the caches are complete for the
// object. With slot.KeyUID the object must also be in the cache.
func (r *Rota) Owns(kind schema.GroupKind, name types.NamespacedName) bool {
	return r.engine.Owns(kind, name)
}

// Run joins the rota and works until ctx ends. Then it leaves: it hands over its slots and duties, and returns when
// that is done or LeaveTimeout has passed. Caches and workers must run until Run has returned (Work takes care of
// that). Run may be called once.
//
// Before it joins, Run waits for the channels of JoinAfter, until all informers of NewQueue and ShareInformer run, and
// until the workers of all controllers have asked their queues for work. It also waits while another member reports
// kinds or options that do not match. Until then Ready reports what Run waits for.
//
// If Run returns an error, the process should exit: a controller is wired wrongly, the table is invalid, a permission
// is missing, options do not match the table, or this member was expelled with work in flight. A member that was
// expelled with nothing in flight joins again.
func (r *Rota) Run(ctx context.Context) error {
	return r.engine.Run(ctx)
}

// Work calls Run, and concurrently run, which must start informers and workers and return when its context has ended.
// It replaces RunOrDie of leader election, with run as OnStartedLeading.
//
// The member joins once the workers of all controllers have asked their queues for work. So run must not wait for
// Joined before it starts them.
//
// When ctx ends, this member leaves the rota first, while informers and workers keep running. Then the context of run
// ends, and Work returns when run has. It returns the error of Run, or an error if run returned too early.
func (r *Rota) Work(ctx context.Context, run func(ctx context.Context)) error {
	return r.engine.Work(ctx, run)
}

// JoinAfter makes this member join only after done is closed. Until then controllers, queues and duties may be set up
// although Run was called. A manager of ctrlrt starts everything except sharded controllers, such as webhook servers
// and runnables. Use it if controllers are built late, for instance after a runnable of the manager has made the
// webhooks' certificates. Close done when the controllers have been built.
//
// what completes the phrase "waiting for", such as "the controllers, which are built once there are certificates".
// Until done is closed, Ready returns an error with that phrase. After 10 s it is also logged and reported by an event.
//
// Call it before Run, and with ctrlrt before anything is set up. After several calls, Run waits for all channels.
func (r *Rota) JoinAfter(what string, done <-chan struct{}) error {
	return r.engine.JoinAfter(what, done)
}

// Joined returns a channel that is closed when this member first appears in the table, with or without slots. Ready is
// the corresponding readiness check.
func (r *Rota) Joined() <-chan struct{} {
	return r.engine.Joined()
}

// Ready is a readiness check. It returns nil once the member has joined, with or without slots. Before that the error
// names what the member waits for. If a controller turns out to be wired wrongly, Ready returns an error for a minute.
// It also returns an error while the table is invalid, since all work stops then. ctrlrt adds it to the manager. The
// request is ignored.
func (r *Rota) Ready(*http.Request) error {
	return r.engine.Ready(nil)
}

// Collector returns the metrics of this member for a Prometheus registry. ctrlrt registers it with the registry of
// controller-runtime.
func (r *Rota) Collector() prometheus.Collector {
	return r.engine.Collector()
}

// Duty declares a duty: work that cannot be sharded, and that exactly one member of the rota does at a time. Call it
// before Run (but see JoinAfter). Members may declare different duties. The rota spreads its duties evenly over the
// members that have declared them, and moves them as it moves slots.
//
// run is called in a new goroutine when this member gets the duty. It is not called again before it has returned. At
// that time, informers made by NewInformer for kinds that are not sharded show all that the duty's former owner wrote
// with clients of WrapConfig.
//
// The context of run carries the epoch of the duty (EpochFrom). Write with it, or with a context derived from it,
// through clients of WrapConfig: such writes are refused once the duty is lost. The context ends, and run must return,
// when
//
//   - the duty is handed over (ErrHandover), because a member joined or this one leaves. The duty's next owner waits
//     until run has returned. Until then run may write with context.WithoutCancel, for instance to store its state. If
//     run does not return within 5 s, that is logged and reported by an event. Only this duty is held up. If this
//     member leaves, it waits for LeaveTimeout at most.
//   - the Lease was not renewed in time, or the duty was lost (ErrExpired or ErrLost). Another member may be about to
//     start, and writes are refused. If this member was expelled, Run returns an error unless run returns within
//     RenewDeadline, since a process must not join again with work of its former membership.
//
// If run returns nil while this member has the duty, the duty is finished until this member gets it again or another
// one gets it, which runs it again. If run returns an error, that is logged, and run is called again after 1 s, then
// 2 s, and so on up to 5 minutes. A run of 5 minutes or more resets the delay. A panic in run ends the process.
//
// The name is one printable word without a comma, of at most 128 characters, and the same on all members. Names that
// begin with "rota.dev/" are reserved. A rota may have slot.MaxDuties duties, counted over all builds. Further duties
// are not run, and the event TableCut reports them.
//
// No duty runs while a member is too old to support duties, as in a rollout.
//
// Rota's built-in duties, the scrub (rule R14) and labelling, count separately.
func (r *Rota) Duty(name string, run func(ctx context.Context) error) error {
	return r.engine.Duty(name, run)
}

// WrapConfig returns a copy of cfg for clients that write as a member must. Use it for every client with which
// reconcilers write, and for the clients of informers, whose requests show which kinds are watched. ctrlrt uses it for
// the manager's clients.
//
// A write with the context of a reconcile, or one derived from it, is refused once the reconcile has returned, its slot
// is lost, or the deadline of the member's Lease has passed. The error then wraps context.Canceled, ErrLost, ErrExpired
// or ErrDeadline. Until then a reconcile whose context has ended, by a timeout or because a leaving member cut it
// short, may write with context.WithoutCancel. A write carries a server-side timeout of at most Options.WriteTimeout
// that ends before the deadline. The client gives up after that time if the write has not been sent by then. Once it
// has been sent, the client waits for the answer until the deadline. A write with unknown outcome keeps its slot from
// moving until it can no longer take effect (rules R2 and R6).
//
// A write with another context is treated the same if its object is in a slot that this member has, or has lost while
// work in it is still in flight. Otherwise it is sent, as a write of an unsharded controller, unless a reconcile of
// this member is still running after it lost its slot, since the write may belong to that reconcile. Events and Leases
// are always sent. A write with another context to an object of a sharded kind, or to a child of one, is logged once
// per place in the program.
//
// Writes and deletions are recorded from their answers, so that the slot's next owner waits until its informers show
// them (rule R8). Writes in another cluster than the kind's informers read from are not recorded. Another cluster is
// one whose config has another host and another certificate authority.
//
// The lists and watches of sharded informers get the informers' selectors, even if a ListerWatcher replaced them. Other
// reads are not changed.
func (r *Rota) WrapConfig(cfg *rest.Config) *rest.Config {
	return r.engine.WrapConfig(cfg)
}

// WrapTransport is WrapConfig for programs that make their own http.Client. If next is nil, http.DefaultTransport is
// used.
func (r *Rota) WrapTransport(next http.RoundTripper) http.RoundTripper {
	return r.engine.WrapTransport(next)
}

// Wrote records a write by a client that was not made with WrapConfig. obj is the answer, an object of any kind, and
// ctx the write's context. The next owner of each slot concerned waits until its informers show the object's version
// (rule R8). These are the slots of the object and of its controlling owner, if their kinds are sharded. For a kind
// that every member caches whole, it is the slot of the reconcile that ctx belongs to. Clients of WrapConfig record
// their writes and deletions themselves.
func (r *Rota) Wrote(ctx context.Context, kind schema.GroupKind, obj metav1.Object) {
	r.engine.Wrote(ctx, kind, obj)
}

// Adapt is for packages of Rota, such as ctrlrt, and panics when called by a program: with these internal parts, a
// program could work on objects of other members.
func (r *Rota) Adapt(access adapter.Access) adapter.Parts {
	return r.engine.Adapt(access)
}
