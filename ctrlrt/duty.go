package ctrlrt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/rota-dev/rota/internal/duty"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/upstream/controllerruntime"
)

// AddDuty adds a runnable as a duty, which one member at a time runs (see rota.Rota.Duty). Its Start is called each
// time this member gets the duty, so it must be able to run more than once. Call AddDuty before the manager starts. It
// replaces Add for runnables that need a leader.
//
// The context of Start ends when the duty is handed over or lost. If Start returns nil before that, the runnable does
// not run again until another member gets the duty, or this one gets it again. If Start returns an error, it is called
// again after a backoff, and the manager keeps running.
func (m *Manager) AddDuty(name string, r manager.Runnable) error {
	switch r.(type) {
	case hasCache, cache.Cache, webhook.Server:
		return fmt.Errorf("duty %s: a %T has to run on every member: use Add", name, r)
	}
	if controllerruntime.IsController(r) {
		return fmt.Errorf("duty %s: %s can be started once only: build it with ctrlrt.NewDutyControllerManagedBy", name,
			describe(r))
	}
	return m.rota.Duty(name, r.Start)
}

// DutyBuilder builds a controller that is not sharded and that one member at a time runs. It has the methods of
// controller-runtime's builder.Builder, except Build, with the same meanings.
type DutyBuilder struct {
	mgr *Manager
	// outer is the manager that was given: mgr, or its Whole.
	outer   manager.Manager
	steps   []func(*builder.Builder)
	raw     []*restartable
	warm    []client.Object
	forObj  client.Object
	options controller.Options
	name    string
	err     error
}

// NewDutyControllerManagedBy returns a builder of a controller that is not sharded. The controller is a duty with the
// controller's name: one member of the rota at a time runs it, and the rota spreads its duties over the members (see
// rota.Rota.Duty). It replaces leader election, and does not need it. The manager must come from NewManager, or from
// Manager.Whole.
//
// When a member gets the duty, it starts a new controller with a new queue. As after a start under leader election, its
// handlers get every object as added, and each is reconciled. The informers always run on every member, so no kind is
// listed again. By then the former owner's reconciles have ended, and the caches show their writes.
//
// When the duty is handed over, the controller stops. Reconciles in flight run to their end, and their contexts do not
// end. A leaving member ends these contexts 6 s before rota.Options.LeaveTimeout is over. Waiting requests are dropped,
// since the next owner reconciles every object.
//
// Every member caches all objects of the kinds that the controller is For, Owns or Watches: in the cache of
// Manager.Whole if the kind is sharded in this manager, and otherwise in the manager's cache.
func NewDutyControllerManagedBy(m manager.Manager) *DutyBuilder {
	switch outer := m.(type) {
	case *Manager:
		return &DutyBuilder{mgr: outer, outer: outer}
	case *whole:
		return &DutyBuilder{mgr: outer.Manager, outer: outer}
	default:
		return &DutyBuilder{err: fmt.Errorf("duty controller: the manager is a %T; make it with ctrlrt.NewManager", m)}
	}
}

func (b *DutyBuilder) add(step func(*builder.Builder)) *DutyBuilder {
	b.steps = append(b.steps, step)
	return b
}

// keepWarm records a kind whose informer runs on every member.
func (b *DutyBuilder) keepWarm(object client.Object, metadata bool) {
	if metadata {
		if gvk, err := apiutil.GVKForObject(object, b.outer.GetScheme()); err == nil {
			about := &metav1.PartialObjectMetadata{}
			about.SetGroupVersionKind(gvk)
			object = about
		}
	}
	b.warm = append(b.warm, object)
}

// For defines the kind that is reconciled; see builder.Builder.
func (b *DutyBuilder) For(object client.Object, opts ...builder.ForOption) *DutyBuilder {
	if b.err != nil {
		return b
	}
	b.forObj = object
	b.keepWarm(object, slices.Contains(opts, builder.ForOption(builder.OnlyMetadata)))
	return b.add(func(inner *builder.Builder) { inner.For(object, opts...) })
}

// Owns defines a kind whose objects enqueue their owner; see builder.Builder.
func (b *DutyBuilder) Owns(object client.Object, opts ...builder.OwnsOption) *DutyBuilder {
	if b.err != nil {
		return b
	}
	b.keepWarm(object, slices.Contains(opts, builder.OwnsOption(builder.OnlyMetadata)))
	return b.add(func(inner *builder.Builder) { inner.Owns(object, opts...) })
}

// Watches defines a kind whose objects are mapped to requests; see builder.Builder.
func (b *DutyBuilder) Watches(object client.Object, h handler.EventHandler,
	opts ...builder.WatchesOption,
) *DutyBuilder {
	if b.err != nil {
		return b
	}
	b.keepWarm(object, slices.Contains(opts, builder.WatchesOption(builder.OnlyMetadata)))
	return b.add(func(inner *builder.Builder) { inner.Watches(object, h, opts...) })
}

// WatchesMetadata is Watches with metadata only; see builder.Builder.
func (b *DutyBuilder) WatchesMetadata(object client.Object, h handler.EventHandler,
	opts ...builder.WatchesOption,
) *DutyBuilder {
	if b.err != nil {
		return b
	}
	b.keepWarm(object, true)
	return b.add(func(inner *builder.Builder) { inner.WatchesMetadata(object, h, opts...) })
}

// WatchesRawSource adds a source; see builder.Builder. The source is started each time this member gets the duty. Only
// a source.Channel cannot be started twice. It is started when the duty comes for the first time. While another member
// has the duty, its events wait, and its sender blocks once the buffer is full, as on a replica that is not the leader.
func (b *DutyBuilder) WatchesRawSource(src source.Source) *DutyBuilder {
	s := newRestartable(src)
	b.raw = append(b.raw, s)
	return b.add(func(inner *builder.Builder) { inner.WatchesRawSource(s) })
}

// WithEventFilter adds a predicate for all events; see builder.Builder.
func (b *DutyBuilder) WithEventFilter(p predicate.Predicate) *DutyBuilder {
	return b.add(func(inner *builder.Builder) { inner.WithEventFilter(p) })
}

// WithOptions sets the controller's options; see builder.Builder. Complete returns an error if NeedLeaderElection is
// false: the controller does not run on every member.
func (b *DutyBuilder) WithOptions(options controller.Options) *DutyBuilder {
	b.options = options
	return b
}

// WithLogConstructor sets the logger of a request; see builder.Builder.
func (b *DutyBuilder) WithLogConstructor(f func(*reconcile.Request) logr.Logger) *DutyBuilder {
	b.options.LogConstructor = f
	return b
}

// Named names the controller and the duty; see builder.Builder.
func (b *DutyBuilder) Named(name string) *DutyBuilder {
	b.name = name
	return b
}

// Complete declares the duty. It returns an error where builder.Builder would, and for names that no duty can have.
// Call it before the manager starts.
func (b *DutyBuilder) Complete(r reconcile.Reconciler) error {
	if b.err != nil {
		return b.err
	}
	if b.name == "" && b.forObj != nil {
		gvk, err := apiutil.GVKForObject(b.forObj, b.outer.GetScheme())
		if err != nil {
			return err
		}
		b.name = strings.ToLower(gvk.Kind)
	}
	if !ptr.Deref(b.options.NeedLeaderElection, true) {
		return fmt.Errorf("duty controller %s: NeedLeaderElection is false, but one member at a time runs it; use "+
			"ctrl.NewControllerManagedBy for one that runs on every replica", b.name)
	}
	if b.options.Reconciler != nil && r != nil {
		return fmt.Errorf("duty controller %s: reconciler was set via WithOptions() and via Complete()", b.name)
	}
	if r == nil {
		r = b.options.Reconciler
	}
	if r == nil {
		return fmt.Errorf("duty controller %s: must provide a non-nil Reconciler", b.name)
	}
	if b.mgr.hasSharded(b.name) {
		return fmt.Errorf("duty controller %s: this manager has a sharded controller of that name, which is its kind unless "+
			"Named gives it another: give one of the two another name with Named", b.name)
	}
	if err := errors.Join(b.watchKinds(), b.mgr.addCachesLate()); err != nil {
		return fmt.Errorf("duty controller %s: %w", b.name, err)
	}
	b.options.Reconciler = nil
	d := &dutyController{DutyBuilder: b, reconciler: dutyReconciler{r}}
	built, err := d.build(b.options)
	if err != nil { // a duty that cannot be built is refused now
		return err
	}
	if err := b.mgr.rota.Duty(b.name, d.run); err != nil {
		return err
	}
	b.mgr.declared.add(built, fmt.Sprintf("the duty controller %q", b.name), adviceSource)
	return b.mgr.inner.Add(warmer{d.warmUp})
}

// watchKinds makes every member cache all objects of the controller's kinds.
func (b *DutyBuilder) watchKinds() error {
	if b.outer != manager.Manager(b.mgr) {
		return nil // Whole's cache has all objects of every kind
	}
	for _, object := range b.warm {
		gvk, err := apiutil.GVKForObject(object, b.mgr.GetScheme())
		if err != nil {
			return err
		}
		disown, err := b.mgr.kinds.watch(gvk.GroupKind(), b.name)
		if err != nil {
			return err
		}
		if disown {
			if err := shareOf(b.mgr.rota).Disown(gvk.GroupKind()); err != nil {
				return err
			}
		}
	}
	return nil
}

// dutyController runs a new controller each time this member gets the duty.
type dutyController struct {
	*DutyBuilder
	reconciler reconcile.Reconciler
}

// build makes a controller.
func (d *dutyController) build(o controller.Options) (manager.Runnable, error) {
	v := &dutyView{Manager: d.outer}
	b := builder.ControllerManagedBy(v)
	for _, step := range d.steps {
		step(b)
	}
	if err := b.Named(d.name).WithOptions(o).Complete(d.reconciler); err != nil {
		return nil, err
	}
	return v.built, nil
}

// run implements the duty.
func (d *dutyController) run(ctx context.Context) error {
	o := d.options
	o.SkipNameValidation = ptr.To(true) // the first controller has the name
	inner := innerQueue(o)
	var queue *dutyQueue
	o.NewQueue = func(name string, limiter workqueue.TypedRateLimiter[request]) (out plainQueue) {
		out, queue = newDutyQueue(inner(name, limiter))
		return out
	}
	defer func() {
		if queue != nil {
			queue.end()
		}
	}()
	c, err := d.build(o)
	if err != nil {
		return err
	}
	registered := &registrations{}
	defer registered.end()
	for _, s := range d.raw {
		defer s.pause()
	}
	return c.Start(withRegistrations(ctx, registered))
}

// warmUp starts the informers, on every member.
func (d *dutyController) warmUp(ctx context.Context) error {
	informers := (&dutyView{Manager: d.outer}).GetCache()
	for _, object := range d.warm {
		if _, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil && ctx.Err() == nil {
			// The controller returns an error each time that it is started.
			d.mgr.GetLogger().Error(err, "An informer of a duty's controller is not kept warm on this member", "controller",
				d.name)
		}
	}
	for _, s := range d.raw {
		s.live(ctx)
	}
	<-ctx.Done()
	return nil
}

// dutyView is the manager that the builder of a duty's controller uses.
type dutyView struct {
	manager.Manager
	built manager.Runnable
}

// Add keeps the controller: the duty starts it.
func (v *dutyView) Add(r manager.Runnable) error {
	v.built = r
	return nil
}

// GetCache returns a cache whose event handlers end with the controller.
func (v *dutyView) GetCache() cache.Cache { return recordingCache{v.Manager.GetCache()} }

// warmer runs on every member.
type warmer struct {
	start func(context.Context) error
}

// Start implements manager.Runnable.
func (w warmer) Start(ctx context.Context) error { return w.start(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (warmer) NeedLeaderElection() bool { return false }

// dutyReconciler keeps a reconcile running when a planned handover begins, and the duty waits for it.
type dutyReconciler struct{ reconcile.Reconciler }

// Reconcile implements reconcile.Reconciler.
func (d dutyReconciler) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	if gate.CutShort(ctx) {
		return reconcile.Result{}, nil // a queue without priorities hands out all items when it is shut down
	}
	held := duty.Held(ctx)
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(context.Canceled)
	if deadline, limited := ctx.Deadline(); limited {
		var end context.CancelFunc
		inner, end = context.WithDeadline(inner, deadline)
		defer end()
	}
	defer context.AfterFunc(held, func() { cancel(context.Cause(held)) })()
	defer context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, gate.ErrHandover) {
			cancel(cause)
		}
	})()
	result, err := d.Reconciler.Reconcile(inner, r)
	if err != nil && gate.CutShort(inner) {
		logr.FromContextOrDiscard(ctx).V(1).Info("Reconcile was cut short", "cause", context.Cause(inner).Error(), "error",
			err.Error())
		return reconcile.Result{}, nil // its next owner repeats it
	}
	return result, err
}
