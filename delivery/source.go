package delivery

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// errStopped is returned by waits on an informer that has stopped.
var errStopped = errors.New("informer stopped")

// source is the ListerWatcher that an informer's reflector gets. It turns the stream of the API server into one of
// the slots held, and brings the store in step with the slots that the share wants (drive).
//
// For every slot: got is the ticket of the list that brought it into the stream, ready the same once a barrier has
// shown that the store holds it. A ticket is the number of the latest request for a fresh list at the time at which
// that list began. 0: the stream does not carry the slot.
type source struct {
	inf      *informer
	upstream cache.ListerWatcherWithContext
	listless bool          // the upstream does not know WatchList
	on       atomic.Bool   // the informer is sharded
	done     chan struct{} // closed when the informer stops
	kick     chan struct{} // the driver should look
	jobs     chan job      // what the pump should inject
	nudges   chan struct{} // the pump should provoke a bookmark
	scope    scope
	suspects chan struct{} // there are new doubts

	received, foreign atomic.Uint64

	reads reads
	// silent: the API server sent no bookmark when it was asked for one.
	silent atomic.Bool

	mu      sync.Mutex
	ailing  [requests]ailing
	nudged  time.Time     // when a bookmark was asked for
	pump    *pump         // the one whose events count
	absent  bool          // the API server does not serve the kind
	page    int64         // how many objects a page of a list should have; 0: nothing is known
	took    time.Duration // what the latest list of slots took
	stale   bool          // slots were taken for empty because of that: the whole has to be listed when it does again
	gen     uint64        // counts the lists that replaced the whole store
	pending *relist
	waiters map[*waiter]struct{}

	// position is the version up to which the upstream's events have been handled; listed is that of the latest list.
	position, listed string
	got, ready       []uint64
	want             []uint64 // the ticket that ready must reach, for slots loaded anew
	ticket           uint64
	// first are slots that the store has held since its first list: nothing false was ever told about them.
	first slot.Set
	// without are slots that were opened although the kind could not be listed, late those of which handlers believe
	// nothing since.
	without, late slot.Set
	// warming slots' events are buffered while they are listed.
	warming slot.Set
	buffer  []watch.Event
	// floors: events of a slot up to its floor are older than what a list brought. nil once position passed all.
	floors   []string
	floorMax string
	// saw is the highest version sent to the store, by slot.
	saw []string
	// past are earlier positions.
	past past
	// since is the version of the list that brought a slot, until Open; nil before the first.
	since []string
	// doubts are objects of which the watch may not tell.
	doubts map[cache.ObjectName]*doubt
	// names are what was sent last, while there may be namesakes in other slots. nil: nobody needs them.
	names     map[cache.ObjectName]sight
	observing bool // the driver needs them
	// ahead are objects that look-ups ahead of the position have shown to be gone. nil once position passed all.
	ahead    map[cache.ObjectName]farewell
	aheadMax string
	// left are the versions by which objects of an owned kind had gone out of the store, where the stream or the buffer
	// may yet tell of older states. nil once position passed all and no slots are warming.
	left    map[identity]string
	leftMax string
	sent    sent
	order   order
}

// relist is a list that the reflector asked for, page by page.
type relist struct {
	set      slot.Set
	ticket   uint64
	version  string
	complete bool
	// listed are the keys that the list showed; strays are objects of which the watch may not tell.
	listed map[string]struct{}
	strays []runtime.Object
	sent   sent
}

// waiter waits for a condition on the source, checked under its lock whenever something changed.
type waiter struct {
	done  func() bool
	woken chan struct{}
}

var (
	_ cache.ListerWatcher            = (*source)(nil)
	_ cache.ListerWatcherWithContext = (*source)(nil)
)

func newSource(inf *informer, lw cache.ListerWatcher) *source {
	n := inf.share.slots + 1 // the last one is that of orphans
	return &source{
		inf: inf, upstream: selecting{cache.ToListerWatcherWithContext(lw), inf.kind, inf.share.unseen}, listless: watchlist.DoesClientNotSupportWatchListSemantics(lw),
		done: make(chan struct{}), kick: make(chan struct{}, 1), jobs: make(chan job), nudges: make(chan struct{}, 1),
		waiters: map[*waiter]struct{}{}, scope: filterScope{}, suspects: make(chan struct{}, 1), doubts: map[cache.ObjectName]*doubt{},
		got: make([]uint64, n), ready: make([]uint64, n), want: make([]uint64, n), saw: make([]string, n), ticket: 1,
	}
}

func (s *source) sharded() bool { return s.on.Load() }

// IsWatchListSemanticsUnSupported is how client-go asks whether to use WatchList.
func (s *source) IsWatchListSemanticsUnSupported() bool { return s.listless }

func (s *source) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

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
	return s.position
}

// highest returns the highest version sent to the store in the slots.
func (s *source) highest(slots []slot.Slot) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	top := ""
	for _, n := range slots {
		if resourceversion.Compare(top, s.saw[n]) < 0 {
			top = s.saw[n]
		}
	}
	return top
}

// see notes that a version of slot n is sent to the store. s.mu is held.
func (s *source) see(n slot.Slot, version string) {
	if resourceversion.Compare(s.saw[n], version) < 0 {
		s.saw[n] = version
	}
}

// sawListed notes that a list showed a deletion in slot n.
func (s *source) sawListed(n slot.Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.see(n, s.listed)
}

// carried returns the slots that the stream carries. s.mu is held.
func (s *source) carried() slot.Set {
	var set slot.Set
	for n, ticket := range s.got {
		if ticket > 0 {
			set.Add(slot.Slot(n))
		}
	}
	return set
}

// begin starts a list of the whole, of the slots that are wanted now. From here on the store cannot be counted on to
// hold other slots, even if they are wanted again before the list comes into effect. s.mu is held.
func (s *source) begin() *relist {
	s.order = order{}
	r := &relist{set: s.inf.held(), ticket: s.ticket, listed: map[string]struct{}{}, sent: s.newSent()}
	for n := range s.got {
		if !r.set.Has(slot.Slot(n)) {
			s.got[n], s.ready[n] = 0, 0
		}
	}
	s.first = s.first.Intersect(r.set)
	return r
}

// needed returns the slots whose events must not be missed while the position advances. s.mu is held.
func (s *source) needed() slot.Set { return s.carried().Union(s.warming) }

// commit notes that a list at a version has replaced, or is about to replace, the whole store. s.mu is held.
func (s *source) commit(r *relist, version string) {
	set, ticket := r.set, r.ticket
	s.sent = r.sent
	s.gen++
	for n := range s.got {
		if !set.Has(slot.Slot(n)) {
			s.got[n], s.ready[n] = 0, 0
			continue
		}
		s.got[n] = ticket
	}
	if s.gen == 1 {
		s.first = set
	}
	s.position, s.listed, s.stale = version, version, false
	s.floors, s.floorMax, s.ahead, s.aheadMax = nil, "", nil, ""
	s.warming, s.buffer, s.names = slot.Set{}, nil, nil
	s.left, s.leftMax = nil, ""
	clear(s.doubts)
	s.keepStrays(r.strays)
	s.changed()
	s.wake()
}

// advance moves the position. s.mu is held.
func (s *source) advance(version string) {
	if version == "" || resourceversion.Compare(version, s.position) <= 0 {
		return
	}
	s.position = version
	s.past.note(time.Now(), version)
	if s.floors != nil && resourceversion.Compare(version, s.floorMax) >= 0 {
		s.floors, s.floorMax = nil, ""
		s.observed()
	}
	s.caughtUp()
	if len(s.waiters) > 0 {
		s.changed()
	}
}

// reached says whether the store's stream holds everything up to the version in the slots. s.mu is held.
func (s *source) reached(slots []slot.Slot, version string) bool {
	if s.unsure(slots, version) {
		return false
	}
	if resourceversion.Compare(s.position, version) >= 0 {
		return true
	}
	if s.floors == nil || len(slots) == 0 {
		return false
	}
	for _, n := range slots {
		if resourceversion.Compare(s.floors[n], version) < 0 {
			return false
		}
	}
	return true
}
