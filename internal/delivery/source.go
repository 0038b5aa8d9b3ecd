package delivery

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/clientgo"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// errStopped ends waits on an informer that has stopped.
var errStopped = errors.New("informer stopped")

// source is the ListerWatcher that an informer's reflector gets. It turns the API server's stream into one of the held
// slots, and brings the store in step with the wanted slots (drive). Package stream decides what goes to the store. A
// source sends requests, and the events that were decided.
type source struct {
	inf         *informer
	upstream    *selecting
	noWatchList bool                  // the upstream does not support WatchList
	on          atomic.Bool           // the informer is sharded
	whole       atomic.Pointer[error] // why the last list or watch failed, if it is not sharded
	done        chan struct{}         // closed when the informer stops
	kick        chan struct{}         // the driver should look
	jobs        chan job              // what the pump should inject
	nudges      chan struct{}         // the pump should provoke a bookmark
	scope       sharding.Scope
	suspects    chan struct{} // there are new doubts
	begun       time.Time

	received, foreign atomic.Uint64

	// versions notes how new the store of a whole kind is; nil: the store does. It stays while the informer runs.
	versions *storeVersions

	reads     reads
	bookmarks bookmarks

	mu      sync.Mutex
	core    *stream.Stream
	ailing  [requests]ailing
	nudged  time.Time     // when a bookmark was asked for
	asked   time.Time     // when a read asked for one
	pump    *pump         // the one whose events count
	absent  bool          // the API server does not serve the kind
	took    time.Duration // duration of the latest list of slots
	stale   bool          // slots counted as empty while absent: everything has to be listed when the kind is served again
	pending *relist
	waiters map[*waiter]struct{}
	// objectBytes is the average size of the objects of the last page of a list; 0: nothing is known. pageLen is how many
	// objects the longest page had.
	objectBytes, pageLen int64
	// listLargest is the largest average of a page of the list under way, and largest that of this list and of earlier
	// ones, of which it forgets half with each list.
	listLargest, largest int64
	// without are slots that were opened although the kind could not be listed. late are those about which handlers have
	// believed nothing since.
	without, late slot.Set
	// hasListed: a list of all objects of some slots has succeeded.
	hasListed bool
	cached    watchCache
	// diagnosing: a diagnosis is under way.
	diagnosing atomic.Bool
	past       past
	remembered atomic.Bool // in past, within the last second
	order      order
}

// relist is a list that the reflector asked for, page by page.
type relist struct {
	*stream.List
	version  string
	complete bool
	cached   bool // it comes from the API server's watch cache
}

// waiter waits for a condition on the source. It is checked under s.mu whenever something changes.
type waiter struct {
	done  func() bool
	woken chan struct{}
}

var (
	_ cache.ListerWatcher            = (*source)(nil)
	_ cache.ListerWatcherWithContext = (*source)(nil)
)

func newSource(inf *informer, lw cache.ListerWatcher) *source {
	s := &source{
		inf: inf, upstream: &selecting{
			to: cache.ToListerWatcherWithContext(lw), kind: inf.kind, unseen: inf.share.unseen,
		},
		noWatchList: clientgo.WatchListUnsupported(lw),
		done:        make(chan struct{}), kick: make(chan struct{}, 1), jobs: make(chan job), nudges: make(chan struct{}, 1),
		waiters: map[*waiter]struct{}{}, suspects: make(chan struct{}, 1), begun: time.Now(),
	}
	s.deliver(sharding.Whole)
	return s
}

// deliver sets the scope once the role of the informer is known. share.mu is held.
func (s *source) deliver(by sharding.Scope) {
	if by.Leaves() {
		widening := &widening{Scope: by}
		widening.wide.Store(s.inf.share.wide[s.inf.kind])
		by = widening
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scope = by
	s.core = stream.New(stream.Config{
		Slots: int(s.inf.share.SlotCount()) + 1, // the last one is that of orphans
		Moves: s.inf.role.Owned(), Namesakes: s.inf.share.Key() == slot.KeyUID && !s.inf.role.Owned(), Selects: by.Leaves(),
	})
}

func (s *source) sharded() bool { return s.on.Load() }

// IsWatchListSemanticsUnSupported tells client-go whether it may use WatchList.
func (s *source) IsWatchListSemanticsUnSupported() bool { return s.noWatchList }

func (s *source) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// now is the time since the source was made.
func (s *source) now() time.Duration { return time.Since(s.begun) }

// changed wakes the waiters whose condition holds. s.mu is held.
func (s *source) changed() {
	s.noneLeft()
	for w := range s.waiters {
		if w.done() {
			close(w.woken)
			delete(s.waiters, w)
		}
	}
}

// at returns the position.
func (s *source) at() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Position()
}

// highest returns the highest version sent to the store in the slots.
func (s *source) highest(slots []slot.Slot) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Highest(slots)
}

// sawListed notes that a list showed a deletion in slot n.
func (s *source) sawListed(n slot.Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.Saw(n, s.core.Listed())
}

// object converts an object for the stream.
func (s *source) object(obj runtime.Object, about metav1.Object) stream.Object {
	n, in := s.inf.place(about)
	return stream.Object{
		Name: stream.Name{Namespace: about.GetNamespace(), Name: about.GetName()}, UID: string(about.GetUID()),
		Version: about.GetResourceVersion(), Slot: n, In: in, Right: s.scope.Right(about), Body: obj,
	}
}

// begin starts a list of everything. s.mu is held.
func (s *source) begin() *relist {
	s.order = order{}
	return &relist{List: s.core.Begin(s.inf.held())}
}

// commit notes that a list at a version has replaced the whole store, or is about to. s.mu is held.
func (s *source) commit(r *relist, version string) {
	doubted := s.core.Commit(r.List, version)
	s.stale = false
	s.cached.slots = slot.Set{}
	if r.cached {
		s.usesCache(r.Set, version)
	}
	s.changed()
	s.wake()
	if doubted {
		s.suspect()
	}
}

// advance moves the position. s.mu is held.
func (s *source) advance(version string) {
	if !s.core.Advance(version) {
		return
	}
	s.remember(version)
	if len(s.waiters) > 0 {
		s.changed()
	}
}

// remember adds a position to those of the past, one a second. Looking at the clock for every event would be a fifth of
// what an event of another member's object costs.
func (s *source) remember(version string) {
	if s.remembered.Load() {
		return
	}
	s.past.add(time.Now(), version)
	s.remembered.Store(true)
	time.AfterFunc(time.Second, func() { s.remembered.Store(false) })
}

// observe has the stream record what it sends until end is called.
func (s *source) observe() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.Observe()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.core.Unobserve()
	}
}
