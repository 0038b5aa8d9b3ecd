package feed

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// Informer wraps a real SharedIndexInformer.
type Informer struct {
	cache.SharedIndexInformer
	placement
	life
	Source *Source
	mark   marker
	barriers
	listeners
	misses
	watchErrors
	transformer
	sums  sums
	Reads Reader
	Whole WholeStore
}

// life is how far an informer has got. registry.mu guards Running and Sharded until Running is true. Then Sharded does
// not change. ran stays true.
type life struct {
	Running, Sharded, ran bool
	started               chan struct{} // closed when the informer begins to run
}

var _ cache.SharedIndexInformer = (*Informer)(nil)

// NewInformer returns the informer of a kind, in a role, that lists and watches with lw.
func NewInformer(s *Common, kind schema.GroupKind, lw cache.ListerWatcher, example runtime.Object, resync time.Duration,
	indexers cache.Indexers,
) *Informer {
	if _, err := meta.Accessor(example); err != nil {
		panic(fmt.Sprintf("informer of %s: %T: %v", kind, example, err))
	}
	inf := &Informer{
		placement: placement{share: s, Kind: kind}, life: life{started: make(chan struct{})}, mark: marker{example},
		barriers: barriers{arrived: make([]atomic.Uint64, s.SlotCount()+1), waiting: map[uint64]chan struct{}{}},
		listeners: listeners{
			handlers: map[*handler]cache.ResourceEventHandlerRegistration{}, passed: make(chan struct{}),
		},
		misses: misses{by: s.slots, of: map[slot.Slot]map[sharding.Subject]struct{}{}},
	}
	inf.Reads.Informer = inf
	inf.Whole = WholeStore{inf: inf, comparing: make(chan struct{}, 1)}
	inf.Source = newSource(inf, lw)
	inf.reflector = cache.NewReflectorWithOptions(inf.Source, example, nil,
		cache.ReflectorOptions{Name: "rota.dev/" + kind.String()})
	// The indexer keeps the map, and AddIndexers would change the caller's.
	own := cache.Indexers{}
	for name, f := range indexers {
		own[name] = f
	}
	inf.SharedIndexInformer = cache.NewSharedIndexInformer(inf.Source, example, resync, own)
	return inf
}

// errRanBefore says, as client-go does, what may not be.
var errRanBefore = errors.New("an informer may be run once, and this one was: start it in one place, as by its factory")

// Run is RunWithContext.
func (i *Informer) Run(stop <-chan struct{}) { i.RunWithContext(wait.ContextForChannel(stop)) }

// RunWithContext decides whether the informer holds a share, and runs it until ctx ends.
func (i *Informer) RunWithContext(ctx context.Context) {
	if !i.share.begins(i, i.prepare) {
		i.share.Log.Error(errRanBefore, "An informer was run again, which does nothing", "kind", i.Kind)
		return
	}
	defer i.forget()
	if !i.Sharded {
		defer context.AfterFunc(ctx, func() { close(i.Source.done) })()
		i.SharedIndexInformer.RunWithContext(ctx)
		return
	}
	i.Source.on.Store(true)
	if err := i.AddIndexers(cache.Indexers{slotIndex: i.indexSlot}); err != nil {
		i.share.Log.Error(err, "Informer cannot be sharded", "kind", i.Kind)
		return
	}
	i.recorder = &handler{informer: i}
	// No resync: the recorder has no use for it.
	if _, err := i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(i.recorder, 0); err != nil {
		i.share.Log.Error(err, "Informer cannot be sharded", "kind", i.Kind)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	// Closing done ends all waits on the informer. It must be closed before the informer waits for its handlers: a handler
	// may be one of those that wait.
	defer context.AfterFunc(ctx, func() { close(i.Source.done) })()
	var wg sync.WaitGroup
	wg.Go(func() { (&driver{i.Source}).drive(ctx) })
	if i.Source.scope.Leaves() {
		wg.Go(func() { confirmer{i.Source}.confirm(ctx) })
	}
	i.SharedIndexInformer.RunWithContext(ctx)
	cancel()
	wg.Wait()
}

// prepare takes the informer's role. registry.mu is held.
func (i *Informer) prepare() {
	if !i.Apart {
		i.Role = i.share.Use(i.Kind, i.ByOwner)
	}
	i.Sharded = i.Role.Primary || i.Role.Owned()
	if err := i.Whole.noteVersions(); err != nil {
		i.share.Log.Error(err, "The version of an informer's store is not known", "kind", i.Kind)
	}
	i.Source.deliver(i.share.Scope(i.Kind, i.Role))
	close(i.started)
}

// forget removes the informer from the share.
func (i *Informer) forget() {
	i.share.ends(i)
	if i.Sharded && i.share.options.Stopped != nil {
		i.share.options.Stopped(i.Kind)
	}
}

// LastSyncResourceVersion returns the position in the stream. The reflector's own version also follows injected events.
func (i *Informer) LastSyncResourceVersion() string {
	if !i.Source.sharded() {
		return i.SharedIndexInformer.LastSyncResourceVersion()
	}
	return i.Source.at()
}

// stored returns the metadata of the object of that name in the informer's store, or nil if there is none.
func (i *Informer) stored(name types.NamespacedName) metav1.Object {
	obj, exists, err := i.GetIndexer().GetByKey(cache.NamespacedNameAsObjectName(name).String())
	if err != nil || !exists {
		return nil
	}
	about, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	return about
}

// Shows implements ledger.View.
func (i *Informer) Shows(name types.NamespacedName, uid types.UID) bool {
	about := i.stored(name)
	return about == nil || about.GetUID() != uid
}

// Version implements ledger.View. A cache at this version has what the store shows.
func (i *Informer) Version() string {
	if i.Sharded {
		return ""
	}
	return i.Whole.atMost()
}

// transformer is the user's function that changes each object before it is stored.
type transformer struct {
	f atomic.Pointer[func(any) (any, error)]
}

// transformed returns an object as the user's function changes it, and marks it, so that it is not changed again on its
// way to the store. Where the function fails, or returns something of another type, the store's own call has to show
// it.
func (t *transformer) transformed(obj runtime.Object) runtime.Object {
	f := t.f.Load()
	if f == nil {
		return obj
	}
	out, err := (*f)(obj)
	if err != nil || reflect.TypeOf(out) != reflect.TypeOf(obj) {
		return obj
	}
	markTransformed(out)
	return out.(runtime.Object)
}

// SetTransform sets the function that changes each object before it is stored. It does not get marked objects.
func (i *Informer) SetTransform(f cache.TransformFunc) error {
	if f == nil {
		err := i.SharedIndexInformer.SetTransform(nil)
		if err == nil {
			i.transformer.f.Store(nil)
		}
		return err
	}
	var one sync.Mutex // lists are transformed on a separate goroutine
	serial := func(obj any) (any, error) {
		one.Lock()
		defer one.Unlock()
		return f(obj)
	}
	err := i.SharedIndexInformer.SetTransform(func(obj any) (any, error) {
		if markOf(obj) != "" || unmarkTransformed(obj) {
			return obj, nil
		}
		return serial(obj)
	})
	if err == nil {
		i.transformer.f.Store(&serial)
	}
	return err
}

// watchErrors calls an informer's WatchErrorHandler.
type watchErrors struct {
	reflector *cache.Reflector // it only has the name and the type of the real one

	mu      sync.Mutex
	handler cache.WatchErrorHandlerWithContext // the user's, or nil for client-go's
}

// report calls the handler.
func (w *watchErrors) report(ctx context.Context, err error) {
	w.mu.Lock()
	handler := w.handler
	w.mu.Unlock()
	if handler == nil {
		handler = cache.DefaultWatchErrorHandler
	}
	handler(ctx, w.reflector, err)
}

func (w *watchErrors) handle(handler cache.WatchErrorHandlerWithContext) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handler = handler
}

// SetWatchErrorHandler implements cache.SharedInformer. The handler also hears of errors of the watches that this
// package opens. Those come with a reflector that only has the name and the type of the real one.
func (i *Informer) SetWatchErrorHandler(handler cache.WatchErrorHandler) error {
	return i.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { handler(r, err) })
}

// SetWatchErrorHandlerWithContext implements cache.SharedInformer, as SetWatchErrorHandler does.
func (i *Informer) SetWatchErrorHandlerWithContext(handler cache.WatchErrorHandlerWithContext) error {
	if err := i.SharedIndexInformer.SetWatchErrorHandlerWithContext(handler); err != nil {
		return err
	}
	i.handle(handler)
	return nil
}
