package delivery

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// watchCache is about slots whose objects come from a list of the API server's watch cache. The cache can answer while
// consistent lists fail, for example because an object was written that cannot be converted: it holds the object as it
// was before. client-go's informers begin with such a list, so slots of a dead owner come with what leader election
// would take over. It is no older than this member's stream of the kind, nor than the versions that a former owner
// handed on. It may lack the latest writes of a former owner that has died. source.mu guards it.
type watchCache struct {
	// slots have objects from it. at is the version of the oldest of their lists, and since when that was sent.
	slots slot.Set
	at    string
	since time.Time
	// barred are slots for which it must not be asked before the kind has been listed: nobody knows which version their
	// former owner wrote.
	barred slot.Set
	// least is the highest version that a former owner handed on.
	least string
	// rechecks: a timer is set for the next try to list the kind.
	rechecks bool
}

const (
	// cacheFor is for how long a slot may come with objects that a list of the watch cache has brought.
	cacheFor = 30 * time.Second
	// recheckAfter is the time between two tries to list the kind while slots have objects of the watch cache.
	recheckAfter = 10 * time.Second
)

// fromCache is a list that the watch cache answers.
func (s *source) fromCache() sharding.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	version := s.core.Position()
	if resourceversion.Compare(version, s.cached.least) < 0 {
		version = s.cached.least
	}
	return sharding.Request{ListOptions: metav1.ListOptions{
		ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}}
}

// mayUseCache reports whether to ask the watch cache after a list of the slots failed: the API server itself has
// failed, and the cache has not answered for all of them before.
func (s *source) mayUseCache(set slot.Set, err error) bool {
	if !internal(err) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rest, barred := set.Minus(s.cached.slots), set.Intersect(s.cached.barred)
	return !rest.Empty() && barred.Empty() && s.core.Position() != ""
}

// usesCache notes that the objects of slots come from a list of the watch cache at a version. s.mu is held.
func (s *source) usesCache(set slot.Set, version string) {
	c := &s.cached
	if c.slots.Empty() || resourceversion.Compare(version, c.at) < 0 {
		c.at = version
	}
	if c.slots.Empty() {
		c.since = time.Now()
	}
	fresh := set.Minus(c.slots)
	c.slots = c.slots.Union(set)
	if !c.rechecks {
		c.rechecks = true
		time.AfterFunc(recheckAfter, s.recheckKind)
	}
	if !fresh.Empty() {
		s.inf.share.log.Error(s.ailing[RequestList].err, "A kind cannot be listed: slots have its objects from the API "+
			"server's watch cache, which may lack the latest writes of the slots' former owner", "kind", s.inf.kind.String(),
			"slots", fresh.String())
	}
}

// recheckKind lists the kind without keeping anything, so that events go on to the store meanwhile. Once it can be
// listed, the slots that have objects of the watch cache are listed again. Otherwise it is tried again later.
func (s *source) recheckKind() {
	ctx, cancel := s.whileRunning(diagnoseTimeout)
	defer cancel()
	s.mu.Lock()
	set := s.cached.slots.Intersect(s.inf.held())
	if s.cached.rechecks = !set.Empty() && ctx.Err() == nil; !s.cached.rechecks {
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	sent := time.Now()
	_, err := s.eachListed(ctx, 0, func(runtime.Object) error { return nil })
	s.answeredList(sent, err)
	s.mu.Lock()
	s.cached.rechecks = err != nil
	s.mu.Unlock()
	if err != nil {
		time.AfterFunc(recheckAfter, s.recheckKind)
		return
	}
	s.refresh(set)
}

// leavesCache notes that the objects of slots do not come from the watch cache, or not any more.
func (s *source) leavesCache(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cached.slots = s.cached.slots.Minus(set)
}

// outdates has slots wait for a new list of the watch cache if what they have of it is old.
func (s *source) outdates(set slot.Set) {
	s.mu.Lock()
	old := !s.cached.slots.Empty() && time.Since(s.cached.since) > cacheFor
	if old {
		s.cached.slots = s.cached.slots.Minus(set)
	}
	s.mu.Unlock()
	if old {
		s.refresh(set)
	}
}

// handedOn notes that a former owner handed slots on at a version. Objects of the watch cache must not be older.
func (s *source) handedOn(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if resourceversion.Compare(s.cached.least, version) < 0 {
		s.cached.least = version
	}
	if resourceversion.Compare(s.cached.at, version) < 0 {
		s.cached.slots = slot.Set{}
	}
}

// distrusts bars the watch cache for slots until the kind can be listed.
func (s *source) distrusts(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cached.slots, s.cached.barred = s.cached.slots.Minus(set), s.cached.barred.Union(set)
}

// standsStill reports whether all of the slots have their objects from the watch cache while the kind cannot be listed.
// Such a cache does not reach a later version. It is false for no slots.
func (s *source) standsStill(set slot.Set) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := set.Minus(s.cached.slots)
	return !set.Empty() && rest.Empty() && s.ailing[RequestList].err != nil
}
