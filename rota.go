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

// Rota is this process's part in a rota. Create it with New. Its methods may be called concurrently.
type Rota struct{ engine *engine.Engine }

// New checks the options and returns a Rota. It does no I/O; Run does. cfg may be nil with Options.Solo, for programs
// whose clients are fakes.
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

// ID returns the identity of the present incarnation; before Run it is empty.
func (r *Rota) ID() string {
	return r.engine.ID()
}

// Owns reports whether this member owns the object of that kind and name and its slot is open, so that the caches are
// complete for it. With slot.KeyUID the object must also be in the cache.
func (r *Rota) Owns(kind schema.GroupKind, name types.NamespacedName) bool {
	return r.engine.Owns(kind, name)
}

// Run joins the rota and works until ctx ends. Then it leaves: it hands over what it owns, and returns when that is
// done or LeaveTimeout has passed. Caches and workers must go on until Run has returned (Work takes care of that). Run
// may be called once.
//
// Run joins when what JoinAfter was told is done, the informers of all queues made by NewQueue and all those of
// ShareInformer run, and the workers of all controllers have asked their queues for work. It does not join while there
// are members that it cannot work together with, as their reports of kinds and options show. Until then Ready says what
// Run waits for.
//
// An error means that the process should end: a controller is wired wrongly, the table is invalid, a permission is
// missing, options do not fit the table, or this member was expelled with work in flight. An expelled member with
// nothing in flight joins again.
func (r *Rota) Run(ctx context.Context) error {
	return r.engine.Run(ctx)
}

// Work calls Run, and beside it run, which starts informers and workers and returns when its context has ended. It
// replaces RunOrDie of leader election, with run as OnStartedLeading.
//
// The member joins once the workers of all controllers have asked their queues for work. So run must not wait for
// Joined before it starts them.
//
// When ctx ends, this member leaves the rota first, while informers and workers go on. Then the context of run ends,
// and Work returns when run has. The error is Run's, or says that run returned too early.
func (r *Rota) Work(ctx context.Context, run func(ctx context.Context)) error {
	return r.engine.Work(ctx, run)
}

// JoinAfter has this member join only when done is closed. Until then controllers, queues and duties may be set up
// although Run was called, and a manager of ctrlrt starts all else, such as webhook servers and runnables. It is for
// programs whose controllers are built late, such as when the certificates of their webhooks have been made by a
// runnable of the manager. Close done when they have been built.
//
// what completes "waiting for", such as "the controllers, which are built once there are certificates". Until done is
// closed, Ready is an error that says so. After 10 s an event and the log say it, too.
//
// Call it before Run, and with ctrlrt before anything is set up. It may be called more than once: Run waits for all.
func (r *Rota) JoinAfter(what string, done <-chan struct{}) error {
	return r.engine.JoinAfter(what, done)
}

// Joined returns a channel that is closed when the table names this member for the first time. A member without slots
// has joined, too. Ready is a readiness check of it.
func (r *Rota) Joined() <-chan struct{} {
	return r.engine.Joined()
}

// Ready is a readiness check. It is nil once the member has joined, with or without slots; before that the error says
// what the member waits for. If a controller turns out to be wired wrongly, Ready is an error for a minute. It is one
// while the table is invalid, since nothing is worked on then. ctrlrt adds it to the manager. The request is ignored.
func (r *Rota) Ready(*http.Request) error {
	return r.engine.Ready(nil)
}

// Collector returns the metrics of this member for a Prometheus registry. ctrlrt registers it with
// controller-runtime's.
func (r *Rota) Collector() prometheus.Collector {
	return r.engine.Collector()
}

// Duty declares a duty: work that cannot be sharded, and that exactly one member of the rota does at a time. Call it
// before Run (but see JoinAfter). Members may differ in their duties. The rota spreads its duties evenly over the
// members that have declared them, and moves them as it moves slots.
//
// run is called in a goroutine of its own when the duty comes to this member. It is not called again before it has
// returned. Informers that NewInformer made of kinds that are not sharded then show what the duty's former owner wrote
// with clients of WrapConfig.
//
// The context of run carries the epoch of the duty (EpochFrom). Write with it, or with one derived from it,
// through clients of WrapConfig: such writes are refused once the duty is lost. The context ends, and run has to
// return, when
//
//   - the duty is handed over, because a member joined, or this one leaves (ErrHandover). The duty's next owner
//     waits until run has returned. Until then run may write with context.WithoutCancel, such as to store its state.
//     If run does not return within 5 s, that is logged and an event says so; nothing but this duty waits for it. When
//     this member leaves, it waits for LeaveTimeout at most.
//   - the Lease was not renewed in time, or the duty was lost (ErrExpired or ErrLost). Others may be about to
//     begin, and writes are refused. If this member was expelled, Run returns an error unless run returns within
//     RenewDeadline: a process must not join again while something of its former life goes on.
//
// If run returns nil while it has the duty, the duty is finished until it comes to this member again or goes to another
// one, which runs it anew. If run returns an error, it is logged, and run is called again after 1 s, then 2 s, and so
// on up to 5 minutes. A run of 5 minutes or more sets that back. A panic in run ends the process.
//
// The name is one printable word without a comma, of at most 128 characters, and the same on all members. Names that
// begin with "rota.dev/" are taken. A rota may have slot.MaxDuties duties, those of all builds together. What has no
// room is done by nobody, and the event TableCut tells of it.
//
// While members take part that are too old to know of duties, as in a rollout, nobody does them.
//
// The rota has duties of its own, which count apart: comparing what members hold with what there is, and labelling.
func (r *Rota) Duty(name string, run func(ctx context.Context) error) error {
	return r.engine.Duty(name, run)
}

// WrapConfig returns a copy of cfg whose clients write as a member must. Use it for every client with which reconcilers
// write, and for those of informers, whose requests show which kinds are watched. ctrlrt uses it for the manager's
// clients.
//
// A write with the context of a reconcile, or one derived from it, is refused once the reconcile has returned, its slot
// is lost, or the deadline of the member's Lease has passed. The error then wraps context.Canceled, ErrLost,
// ErrExpired or ErrDeadline. Until then a reconcile whose context has ended, by a timeout or because a member that
// leaves cuts it short, may write with context.WithoutCancel. A write carries a server-side timeout within that
// deadline, of at most Options.WriteTimeout. The client gives up with it as long as the write has not been sent, and
// then waits for the answer until that deadline. If the outcome is unknown, the write keeps its slot from moving on
// until it can no longer take effect (rules R2 and R6).
//
// A write with another context is treated the same if its object is in a slot that this member has, or still works in
// after it lost it. Otherwise it goes through, as a write of an unsharded controller, unless a reconcile of this member
// goes on without its slot: the write may belong to that. Events and Leases always go through. A write with another
// context to an object of a sharded kind, or to a child of one, is logged once per place in the program.
//
// Writes and deletions are noted from their answers, so that the slot's next owner waits until its informers show them
// (rule R8). Those in another cluster than the kind's informers read from are not: its config has another host and
// another certificate authority.
//
// The reads of sharded informers get the informers' selectors, even if a ListerWatcher replaced them. Other reads are
// left alone.
func (r *Rota) WrapConfig(cfg *rest.Config) *rest.Config {
	return r.engine.WrapConfig(cfg)
}

// WrapTransport is WrapConfig for programs that make their own http.Client. nil stands for http.DefaultTransport.
func (r *Rota) WrapTransport(next http.RoundTripper) http.RoundTripper {
	return r.engine.WrapTransport(next)
}

// Wrote notes that a client of this member wrote an object of any kind and got this answer. ctx is the write's context.
// The next owners of these slots wait until their informers show the object's version (rule R8): the object's own slot,
// and its controlling owner's, if their kinds are sharded; for a kind that every member caches whole, the slot that ctx
// works in. Clients of WrapConfig note their writes and deletions themselves. Wrote is for other clients.
func (r *Rota) Wrote(ctx context.Context, kind schema.GroupKind, obj metav1.Object) {
	r.engine.Wrote(ctx, kind, obj)
}

// Adapt is for package ctrlrt and for dispatchers: with the parts of a rota that open slots, a program could work on
// objects of other members. It panics unless a package of Rota has granted access.
func (r *Rota) Adapt(access adapter.Access) adapter.Parts {
	return r.engine.Adapt(access)
}
