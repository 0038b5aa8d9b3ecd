package delivery

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/slot"
)

// slotIndex is the name of the index that finds a store's objects by slot.
const slotIndex = "rota.dev/slot"

// informer wraps a real SharedIndexInformer.
type informer struct {
	cache.SharedIndexInformer
	share  *Share
	kind   schema.GroupKind
	mark   marker
	source *source
	// asOwned: it holds objects by their owners, even if the kind is primary as well.
	asOwned bool

	// running and sharded are guarded by share.mu until running is true, then sharded stays as it is.
	running, sharded bool
	role             role
	// started is closed when it begins to run.
	started chan struct{}
	once    sync.Once

	// marks is the number of the last barrier sent. joining is held while a barrier travels and while a handler
	// joins, so that a handler that joins after barrier n has seen[n] and will see all later ones.
	joining sync.Mutex
	marks   atomic.Uint64

	// arrived[s] is the barrier before which notifications about slot s may be false: a Replace that races a
	// loss tells handlers that the slot's objects were deleted. 0: there are none.
	arrived []atomic.Uint64

	mu       sync.Mutex
	handlers map[*handler]cache.ResourceEventHandlerRegistration
	waiting  map[uint64]chan struct{}           // barriers on their way
	missed   map[slot.Slot]map[subject]struct{} // what deletions were about that handlers could not hear of
	passed   chan struct{}                      // closed and replaced when any handler passes a barrier
	recorder *handler
	sums     sums
	// watchError is the user's; nil: client-go's. It is called with reflector, see SetWatchErrorHandler.
	watchError cache.WatchErrorHandlerWithContext
	reflector  *cache.Reflector

	// Of a whole kind: a list showed nothing up to version compared that the store did not. Whoever is in comparing may use it.
	compared  string
	comparing chan struct{}
}

var _ cache.SharedIndexInformer = (*informer)(nil)

func newInformer(s *Share, kind schema.GroupKind, lw cache.ListerWatcher, example runtime.Object, resync time.Duration,
	indexers cache.Indexers,
) *informer {
	inf := &informer{
		share: s, kind: kind, mark: marker{example}, arrived: make([]atomic.Uint64, s.slots+1),
		handlers: map[*handler]cache.ResourceEventHandlerRegistration{}, waiting: map[uint64]chan struct{}{},
		missed: map[slot.Slot]map[subject]struct{}{}, passed: make(chan struct{}), started: make(chan struct{}),
		comparing: make(chan struct{}, 1),
	}
	inf.source = newSource(inf, lw)
	inf.reflector = cache.NewReflectorWithOptions(inf.source, example, nil, cache.ReflectorOptions{Name: "rota.dev/" + kind.String()})
	// The indexer takes the map as its own and AddIndexers would change the caller's.
	own := cache.Indexers{}
	for name, f := range indexers {
		own[name] = f
	}
	inf.SharedIndexInformer = cache.NewSharedIndexInformer(inf.source, example, resync, own)
	return inf
}

// Run is RunWithContext.
func (i *informer) Run(stop <-chan struct{}) { i.RunWithContext(wait.ContextForChannel(stop)) }

// RunWithContext decides whether the informer holds a share, and runs it.
func (i *informer) RunWithContext(ctx context.Context) {
	i.share.mu.Lock()
	again := i.running
	i.running = true
	i.role = i.share.roles[i.kind].of(i)
	i.sharded = i.role.primary || i.owned()
	i.source.deliver(i.share.scopeOf(i.kind, i.role))
	i.once.Do(func() { close(i.started) })
	i.share.mu.Unlock()
	if again {
		i.SharedIndexInformer.RunWithContext(ctx) // says that this is not allowed
		return
	}
	defer i.forget()
	if !i.sharded {
		i.SharedIndexInformer.RunWithContext(ctx)
		return
	}
	i.source.on.Store(true)
	if err := i.AddIndexers(cache.Indexers{slotIndex: i.indexSlot}); err != nil {
		i.share.log.Error(err, "Informer cannot be sharded", "kind", i.kind)
		return
	}
	i.recorder = &handler{informer: i}
	// No resync: it would only cost time.
	if _, err := i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(i.recorder, 0); err != nil {
		i.share.log.Error(err, "Informer cannot be sharded", "kind", i.kind)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	// Whoever waits for the informer must go before it waits for the handlers, of which one may be the one that waits.
	defer context.AfterFunc(ctx, func() { close(i.source.done) })()
	var wg sync.WaitGroup
	wg.Go(func() { i.source.drive(ctx) })
	if i.source.scope.leaves() {
		wg.Go(func() { i.source.confirm(ctx) })
	}
	i.SharedIndexInformer.RunWithContext(ctx)
	cancel()
	wg.Wait()
}

// forget takes the informer, which never runs again, out of the share.
func (i *informer) forget() {
	i.share.mu.Lock()
	i.running = false
	for n, other := range i.share.informers {
		if other == i {
			i.share.informers = append(i.share.informers[:n:n], i.share.informers[n+1:]...)
			break
		}
	}
	i.share.mu.Unlock()
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

// keys returns the keys in the store of the slots.
func (i *informer) keys(set slot.Set) map[string]slot.Slot {
	out := map[string]slot.Slot{}
	for _, n := range set.Slots() {
		keys, err := i.GetIndexer().IndexKeys(slotIndex, slotNames[n])
		if err != nil {
			continue // the index is added before the informer runs
		}
		for _, key := range keys {
			out[key] = n
		}
	}
	return out
}

// LastSyncResourceVersion returns the position in the stream: the reflector's own follows what is injected.
func (i *informer) LastSyncResourceVersion() string {
	if !i.source.sharded() {
		return i.SharedIndexInformer.LastSyncResourceVersion()
	}
	return i.source.at()
}

// SetTransform sets what is done to each object before it is stored. Marked objects are none of its business.
func (i *informer) SetTransform(f cache.TransformFunc) error {
	if f == nil {
		return i.SharedIndexInformer.SetTransform(nil)
	}
	return i.SharedIndexInformer.SetTransform(func(obj any) (any, error) {
		if markOf(obj) != "" {
			return obj, nil
		}
		return f(obj)
	})
}
