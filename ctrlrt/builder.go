package ctrlrt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/upstream/controllerruntime"
	"github.com/rota-dev/rota/internal/work"
)

// Builder builds a sharded controller. It has the methods of controller-runtime's builder.Builder, and they mean
// the same.
type Builder struct {
	mgr     *Manager
	view    *view
	inner   *builder.Builder
	twin    *twin
	forObj  client.Object
	owned   []client.Object // by controlling owner
	whole   []client.Object // cached whole
	blind   bool            // a source cannot be asked; see chooser
	options controller.Options
	name    string
	reset   func(context.Context, reconcile.Request)
	lost    func(context.Context, reconcile.Request)
	err     error
}

// NewControllerManagedBy returns a builder of a sharded controller. The manager must come from NewManager, or Build
// returns an error. The parameter has the interface type so that SetupWithManager(mgr ctrl.Manager) need not change.
func NewControllerManagedBy(m manager.Manager) *Builder {
	mgr, ok := m.(*Manager)
	if !ok {
		return &Builder{
			inner: builder.ControllerManagedBy(m),
			twin:  newTwin(m),
			err:   fmt.Errorf("sharded controller: the manager is a %T; make it with ctrlrt.NewManager", m),
		}
	}
	twin := newTwin(mgr)
	v := &view{Manager: mgr, asker: &asker{owned: map[schema.GroupKind]bool{}, twin: twin},
		sources: newSources(shareOf(mgr.rota).ListError)}
	return &Builder{mgr: mgr, view: v, inner: builder.ControllerManagedBy(v), twin: twin}
}

// For defines the kind that is reconciled and sharded; see builder.Builder.
func (b *Builder) For(object client.Object, opts ...builder.ForOption) *Builder {
	b.forObj = object
	b.inner.For(object, opts...)
	b.twin.builder.For(object, opts...)
	return b
}

// Owns defines a kind whose objects enqueue their owner; see builder.Builder. A member caches the objects whose
// controlling owners belong to it. Every member caches all objects with builder.MatchEveryOwner. The same holds if
// another call Watches the kind or Manager.KeepWhole was called, unless a sharded controller is For the kind.
func (b *Builder) Owns(object client.Object, opts ...builder.OwnsOption) *Builder {
	if slices.Contains(opts, builder.OwnsOption(builder.MatchEveryOwner)) {
		b.whole = append(b.whole, object)
	} else {
		b.owned = append(b.owned, object)
	}
	b.inner.Owns(object, opts...)
	b.twin.builder.Owns(object, opts...)
	return b
}

// Watches defines a kind whose objects are mapped to requests; see builder.Builder. Every member caches all objects, in
// the cache of Manager.Whole if another sharded controller is For that kind, and otherwise in the manager's cache.
func (b *Builder) Watches(object client.Object, h handler.EventHandler, opts ...builder.WatchesOption) *Builder {
	b.whole = append(b.whole, object)
	b.blind = b.blind || !isPure(h)
	b.inner.Watches(object, h, opts...)
	b.twin.builder.Watches(object, h, opts...)
	return b
}

// WatchesMetadata is Watches with metadata only; see builder.Builder.
func (b *Builder) WatchesMetadata(object client.Object, h handler.EventHandler,
	opts ...builder.WatchesOption,
) *Builder {
	b.whole = append(b.whole, object)
	b.blind = b.blind || !isPure(h)
	b.inner.WatchesMetadata(object, h, opts...)
	b.twin.builder.WatchesMetadata(object, h, opts...)
	return b
}

// WatchesRawSource adds a source; see builder.Builder. Requests for objects of other members are dropped. With
// rota.Options.Address, those of a source.Channel are forwarded to their owners.
func (b *Builder) WatchesRawSource(src source.Source) *Builder {
	b.blind = b.blind || !controllerruntime.IsChannel(src)
	src = forwarding(src)
	if b.view != nil && src != nil {
		src = newRawSource(src, b.view.sources)
	}
	b.inner.WatchesRawSource(src)
	return b
}

// WithEventFilter adds a predicate for all events; see builder.Builder. When this member gets a slot, it enqueues the
// slot's objects that the predicates accept as created, as at a start.
func (b *Builder) WithEventFilter(p predicate.Predicate) *Builder {
	b.inner.WithEventFilter(p)
	b.twin.builder.WithEventFilter(p)
	return b
}

// WithOptions sets the controller's options; see builder.Builder. Build returns an error if NeedLeaderElection is true.
func (b *Builder) WithOptions(options controller.Options) *Builder {
	b.options = options
	return b
}

// WithLogConstructor sets the logger of a request; see builder.Builder.
func (b *Builder) WithLogConstructor(f func(*reconcile.Request) logr.Logger) *Builder {
	b.options.LogConstructor = f
	return b
}

// Named names the controller; see builder.Builder.
func (b *Builder) Named(name string) *Builder {
	b.name = name
	b.inner.Named(name)
	return b
}

// OnReset sets a function that is called before the first reconcile of each object after its slot was opened on this
// member. While a slot is closed, handlers get none of its events, so expectations and other counts of events are wrong
// afterwards. f should reset them. See rota.Queue.OnReset for the guarantees while f runs. f runs in the worker's
// goroutine, concurrently for different requests, and may block.
func (b *Builder) OnReset(f func(ctx context.Context, r reconcile.Request)) *Builder {
	b.reset = f
	return b
}

// OnLost sets a function that is called once for each object that was reconciled here, after its slot has left this
// member. f should drop the state that the process keeps for the object, such as its metrics (DropSeries). See
// rota.Queue.OnLost for the guarantees while f runs, and for the objects that it is called for. f must not write to the
// object, which belongs to the next owner.
func (b *Builder) OnLost(f func(ctx context.Context, r reconcile.Request)) *Builder {
	b.lost = f
	return b
}

// Complete builds the controller. For its errors see Build.
func (b *Builder) Complete(r reconcile.Reconciler) error {
	_, err := b.Build(r)
	return err
}

// Build builds the controller and returns it. It returns an error if options contradict sharding, or if the manager's
// cache has already given out an informer of all objects of the kind.
func (b *Builder) Build(r reconcile.Reconciler) (controller.Controller, error) {
	if b.err != nil {
		return nil, b.err
	}
	if b.forObj == nil {
		return nil, errors.New("sharded controller: call For: the kind to be sharded is missing")
	}
	gvk, err := apiutil.GVKForObject(b.forObj, b.mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	name := b.name
	if name == "" {
		name = strings.ToLower(gvk.Kind)
	}
	o := b.options
	if ptr.Deref(o.NeedLeaderElection, false) {
		return nil, fmt.Errorf("controller %s: NeedLeaderElection is true, but a sharded controller runs on every member; "+
			"use ctrl.NewControllerManagedBy for one that needs the leader", name)
	}
	if o.Reconciler != nil && r != nil {
		return nil, fmt.Errorf("controller %s: reconciler was set via WithOptions() and via Build() or Complete()", name)
	}
	if r == nil {
		r = o.Reconciler
	}
	if r == nil {
		return nil, fmt.Errorf("controller %s: must provide a non-nil Reconciler", name)
	}
	if err := b.mgr.kinds.shard(gvk.GroupKind(), name); err != nil {
		return nil, err
	}
	for _, object := range b.whole {
		if err := b.watch(object, name); err != nil {
			return nil, fmt.Errorf("controller %s: %w", name, err)
		}
	}
	for _, object := range b.owned {
		if err := b.own(object, gvk.GroupKind(), name); err != nil {
			return nil, err
		}
	}
	if err := b.mgr.addCachesLate(); err != nil {
		return nil, err
	}
	b.view.asker.controller = name
	w := &worker{name: name, reconciler: r, sources: b.view.sources}
	w.controller, err = b.mgr.rota.Adapt(adapter.Grant()).NewController(name, gvk.GroupKind(), w.enqueue)
	if err != nil {
		return nil, err
	}
	w.controller.Explain(w.sources.missing)
	keyOf := func(key types.NamespacedName) types.NamespacedName { return b.mgr.reader.keyOf(gvk, key) }
	chooser := &chooser{kind: gvk.GroupKind(), share: shareOf(b.mgr.rota), enqueue: w.enqueue, keyOf: keyOf,
		blind: b.blind}
	b.view.asker.chooser = chooser
	w.controller.SetChoose(chooser.choose)
	b.mgr.addWorker(w)
	if b.reset != nil {
		w.controller.OnReset(func(ctx context.Context, key types.NamespacedName) {
			b.reset(ctx, request{NamespacedName: key})
		})
	}
	if b.lost != nil {
		w.controller.OnLost(func(ctx context.Context, key types.NamespacedName) {
			b.lost(ctx, request{NamespacedName: key})
		})
	}
	w.controller.ExpectKindLate() // the manager waits for informers and knows which kinds are not installed
	o.NeedLeaderElection = ptr.To(false)
	o.Reconciler = nil
	defaulted := o
	defaulted.DefaultFromConfig(b.mgr.GetControllerOptions())
	o.NewQueue = wrapQueue(defaulted, w.controller, keyOf, w.setQueue)
	b.inner.WithOptions(o)
	_ = b.twin.build(name) // the next line returns the same error
	built, err := b.inner.Build(w)
	if err != nil {
		return nil, err
	}
	return watching{built, chooser}, nil
}

// watching is a built controller. Sources added with its Watch cannot be asked; see chooser.
type watching struct {
	controller.Controller
	chooser *chooser
}

// Watch implements controller.Controller.
func (w watching) Watch(src source.Source) error {
	if !controllerruntime.IsChannel(src) {
		w.chooser.cannotAsk()
	}
	return w.Controller.Watch(forwarding(src))
}

// watch makes every member cache all objects of a kind.
func (b *Builder) watch(object client.Object, controller string) error {
	gvk, err := apiutil.GVKForObject(object, b.mgr.GetScheme())
	if err != nil {
		return err
	}
	disown, err := b.mgr.kinds.watch(gvk.GroupKind(), controller)
	if err != nil || !disown {
		return err
	}
	return shareOf(b.mgr.rota).Disown(gvk.GroupKind())
}

// own shards a kind by its controlling owners, unless all of its objects are needed.
func (b *Builder) own(object client.Object, owner schema.GroupKind, controller string) error {
	gvk, err := apiutil.GVKForObject(object, b.mgr.GetScheme())
	if err != nil {
		return err
	}
	kind := gvk.GroupKind()
	sharded, err := b.mgr.kinds.own(kind, controller)
	if err != nil || !sharded {
		return err
	}
	b.view.asker.owned[kind] = true
	namespaced, err := b.mgr.GetClient().IsObjectNamespaced(b.forObj)
	if err != nil {
		return fmt.Errorf("controller %s: is kind %s namespaced? %w", controller, owner, err)
	}
	if !shareOf(b.mgr.rota).Own(kind, owner, namespaced) {
		return b.mgr.keepWhole(kind) // an informer of the kind already runs
	}
	return nil
}

// worker is the reconciler of controller-runtime's controller. It calls the user's reconciler.
type worker struct {
	name       string
	sources    *sources
	reconciler reconcile.Reconciler
	controller *controllers.Controller

	mu    sync.Mutex
	queue plainQueue
}

func (w *worker) setQueue(q plainQueue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = q
}

// enqueue implements controllers.Enqueue. Before the controller starts there is no queue, and its start enqueues all
// objects.
func (w *worker) enqueue(keys []types.NamespacedName, priority work.Priority) {
	w.mu.Lock()
	q := w.queue
	w.mu.Unlock()
	if q == nil || len(keys) == 0 {
		return
	}
	requests := make([]request, len(keys))
	for i, key := range keys {
		requests[i] = request{NamespacedName: key}
	}
	enqueue(q, requests, int(priority))
}

// Reconcile calls the user's reconciler for the keys that the gate admits.
func (w *worker) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	ctx, ok := w.controller.Admit(ctx, r.NamespacedName)
	if !ok {
		return reconcile.Result{}, nil
	}
	w.controller.Ended(r.NamespacedName, controllers.ErrPanicked) // unless it returns
	result, err := w.reconciler.Reconcile(ctx, r)
	w.controller.Ended(r.NamespacedName, err)
	if err != nil && gate.CutShort(ctx) {
		logr.FromContextOrDiscard(ctx).V(1).Info("Reconcile was cut short", "cause", context.Cause(ctx).Error(), "error",
			err.Error())
		return reconcile.Result{}, nil // its next owner repeats it
	}
	return result, err
}

// shareOf returns the informers over a member's share.
func shareOf(r *rota.Rota) *delivery.Share { return r.Adapt(adapter.Grant()).Share }
