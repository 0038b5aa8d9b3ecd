package delivery

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// slotIndex is the index that finds a store's objects by slot.
const slotIndex = "rota.dev/slot"

// informer wraps a real SharedIndexInformer.
type informer struct {
	cache.SharedIndexInformer
	share  *Share
	kind   schema.GroupKind
	mark   marker
	source *source
	// byOwner: the informer holds objects by their owners, even if the kind is primary as well.
	byOwner bool
	// apart: the informer holds all objects, whatever is sharded. See NewWholeInformer.
	apart bool

	// running and sharded are guarded by share.mu until running is true. Then sharded does not change. ran stays true.
	running, sharded, ran bool
	role                  sharding.Role
	// started is closed when the informer begins to run.
	started chan struct{}
	once    sync.Once

	// marks is the number of the last barrier sent. joining is held while a barrier travels and while a handler is added.
	// So a handler that is added after barrier n has seen n, and will see all later ones.
	joining sync.Mutex
	marks   atomic.Uint64

	// arrived[s] is the barrier before which notifications about slot s may be false: if a Replace races with the loss of
	// the slot, it tells handlers that the slot's objects were deleted. 0: no such barrier.
	arrived []atomic.Uint64

	mu       sync.Mutex
	handlers map[*handler]cache.ResourceEventHandlerRegistration
	waiting  map[uint64]chan struct{}                    // barriers on their way
	missed   map[slot.Slot]map[sharding.Subject]struct{} // deletions that handlers could not hear of
	passed   chan struct{}                               // closed and replaced when any handler passes a barrier
	recorder *handler
	sums     sums
	// watchError is the user's handler; nil: client-go's. It is called with reflector; see SetWatchErrorHandler.
	watchError cache.WatchErrorHandlerWithContext
	transform  atomic.Pointer[func(any) (any, error)] // the user's; see SetTransform
	reflector  *cache.Reflector
	selected   atomic.Pointer[selected] // see selection

	// For whole kinds: at the version compared, a list showed nothing that the store did not. comparing guards it.
	compared  string
	comparing chan struct{}
}

var _ cache.SharedIndexInformer = (*informer)(nil)

func newInformer(s *Share, kind schema.GroupKind, lw cache.ListerWatcher, example runtime.Object, resync time.Duration,
	indexers cache.Indexers,
) *informer {
	if _, err := meta.Accessor(example); err != nil {
		panic(fmt.Sprintf("informer of %s: %T: %v", kind, example, err))
	}
	inf := &informer{
		share: s, kind: kind, mark: marker{example}, arrived: make([]atomic.Uint64, s.SlotCount()+1),
		handlers: map[*handler]cache.ResourceEventHandlerRegistration{}, waiting: map[uint64]chan struct{}{},
		missed: map[slot.Slot]map[sharding.Subject]struct{}{}, passed: make(chan struct{}), started: make(chan struct{}),
		comparing: make(chan struct{}, 1),
	}
	inf.source = newSource(inf, lw)
	inf.reflector = cache.NewReflectorWithOptions(inf.source, example, nil,
		cache.ReflectorOptions{Name: "rota.dev/" + kind.String()})
	// The indexer keeps the map, and AddIndexers would change the caller's.
	own := cache.Indexers{}
	for name, f := range indexers {
		own[name] = f
	}
	inf.SharedIndexInformer = cache.NewSharedIndexInformer(inf.source, example, resync, own)
	return inf
}

// errRanBefore says, as client-go does, what may not be.
var errRanBefore = errors.New("an informer may be run once, and this one was: start it in one place, as by its factory")

// Run is RunWithContext.
func (i *informer) Run(stop <-chan struct{}) { i.RunWithContext(wait.ContextForChannel(stop)) }

// RunWithContext decides whether the informer holds a share, and runs it until ctx ends.
func (i *informer) RunWithContext(ctx context.Context) {
	i.share.mu.Lock()
	if i.ran {
		i.share.mu.Unlock()
		i.share.log.Error(errRanBefore, "An informer was run again, which does nothing", "kind", i.kind)
		return
	}
	i.ran, i.running = true, true
	if !i.apart {
		i.role = i.share.Use(i.kind, i.byOwner)
	}
	i.sharded = i.role.Primary || i.role.Owned()
	if err := i.noteVersions(); err != nil {
		i.share.log.Error(err, "The version of an informer's store is not known", "kind", i.kind)
	}
	i.source.deliver(i.share.Scope(i.kind, i.role))
	i.once.Do(func() { close(i.started) })
	i.share.mu.Unlock()
	defer i.forget()
	if !i.sharded {
		defer context.AfterFunc(ctx, func() { close(i.source.done) })()
		i.SharedIndexInformer.RunWithContext(ctx)
		return
	}
	i.source.on.Store(true)
	if err := i.AddIndexers(cache.Indexers{slotIndex: i.indexSlot}); err != nil {
		i.share.log.Error(err, "Informer cannot be sharded", "kind", i.kind)
		return
	}
	i.recorder = &handler{informer: i}
	// No resync: the recorder has no use for it.
	if _, err := i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(i.recorder, 0); err != nil {
		i.share.log.Error(err, "Informer cannot be sharded", "kind", i.kind)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	// Closing done ends all waits on the informer. It must be closed before the informer waits for its handlers: a handler
	// may be one of those that wait.
	defer context.AfterFunc(ctx, func() { close(i.source.done) })()
	var wg sync.WaitGroup
	wg.Go(func() { i.source.drive(ctx) })
	if i.source.scope.Leaves() {
		wg.Go(func() { i.source.confirm(ctx) })
	}
	i.SharedIndexInformer.RunWithContext(ctx)
	cancel()
	wg.Wait()
}

// forget removes the informer from the share. It never runs again. If it held a share, the share keeps its store.
func (i *informer) forget() {
	is := func(other *informer) bool { return other == i }
	i.share.mu.Lock()
	i.running = false
	if !i.apart {
		i.share.Disuse(i.kind, i.byOwner)
	}
	i.share.informers = slices.DeleteFunc(slices.Clone(i.share.informers), is)
	i.share.besides = slices.DeleteFunc(slices.Clone(i.share.besides), is)
	if i.sharded {
		i.share.ended[view{i.kind, i.byOwner}] = i
		i.share.hasEnded.Store(true)
	}
	i.share.mu.Unlock()
	if i.sharded && i.share.stopped != nil {
		i.share.stopped(i.kind)
	}
}

func (i *informer) indexSlot(obj any) ([]string, error) {
	n, _, ok := i.slotOf(obj)
	if !ok {
		return nil, nil
	}
	return slotNames[n : n+1 : n+1], nil
}

var slotNames = func() []string {
	names := make([]string, slot.MaxCount)
	for n := range names {
		names[n] = strconv.Itoa(n)
	}
	return names
}()

// inSlot returns the store's objects in a slot.
func (i *informer) inSlot(n slot.Slot) []any {
	objects, err := i.GetIndexer().ByIndex(slotIndex, slotNames[n])
	if err != nil {
		return nil // cannot happen: the index is added before the informer runs
	}
	return objects
}

// objects returns the store's objects in the slots.
func (i *informer) objects(set slot.Set) iter.Seq2[slot.Slot, any] {
	return func(yield func(slot.Slot, any) bool) {
		for _, n := range set.Slots() {
			for _, obj := range i.inSlot(n) {
				if !yield(n, obj) {
					return
				}
			}
		}
	}
}

// LastSyncResourceVersion returns the position in the stream. The reflector's own version follows injected events, too.
func (i *informer) LastSyncResourceVersion() string {
	if !i.source.sharded() {
		return i.SharedIndexInformer.LastSyncResourceVersion()
	}
	return i.source.at()
}

// SetTransform sets the function that changes each object before it is stored. It does not get marked objects.
func (i *informer) SetTransform(f cache.TransformFunc) error {
	if f == nil {
		err := i.SharedIndexInformer.SetTransform(nil)
		if err == nil {
			i.transform.Store(nil)
		}
		return err
	}
	var one sync.Mutex // lists are transformed on a goroutine of their own
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
		i.transform.Store(&serial)
	}
	return err
}

// transformed returns an object as the user's function changes it, and marks it, so that it is not changed again on its
// way to the store. Where the function fails, or returns something of another type, the store's own call has to show
// it.
func (i *informer) transformed(obj runtime.Object) runtime.Object {
	f := i.transform.Load()
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
