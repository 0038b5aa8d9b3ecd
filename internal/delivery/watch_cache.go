package delivery

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// watchCache is about slots whose objects come from a list of the API server's watch cache. The cache can answer while
// consistent lists fail, for example because an object was written that cannot be converted: it holds the object as it
// was before. client-go's informers begin with such a list, so slots come with what leader election would take over. It
// is no older than this member's stream of the kind, nor than the versions that a former owner handed on. It may lack
// the latest writes of a former owner that has died. Such slots are listed again, consistently, until that succeeds.
// source.mu guards it.
type watchCache struct {
	// slots have objects from it; at is the version of the oldest of their lists.
	slots slot.Set
	at    string
	// least is the highest version that a former owner handed on.
	least string
}

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
	rest := set.Minus(s.cached.slots)
	return !rest.Empty() && s.core.Position() != ""
}

// usesCache notes that the objects of slots come from the watch cache, and has them listed again later.
func (s *source) usesCache(set slot.Set, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cached.slots.Empty() || resourceversion.Compare(version, s.cached.at) < 0 {
		s.cached.at = version
	}
	fresh := set.Minus(s.cached.slots)
	s.cached.slots = s.cached.slots.Union(set)
	time.AfterFunc(lastBackoff, func() { s.refresh(set) })
	if !fresh.Empty() {
		s.inf.share.log.Error(s.ailing[RequestList].err, "A kind cannot be listed: slots have its objects from the API "+
			"server's watch cache, which may lack the latest writes of the slots' former owner", "kind", s.inf.kind.String(),
			"slots", fresh.String())
	}
}

// leavesCache notes that the objects of slots do not come from the watch cache, or not any more.
func (s *source) leavesCache(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cached.slots = s.cached.slots.Minus(set)
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

// standsStill reports whether all of the slots have their objects from the watch cache while the kind cannot be listed.
// Such a cache does not reach a later version. It is false for no slots.
func (s *source) standsStill(set slot.Set) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := set.Minus(s.cached.slots)
	return !set.Empty() && rest.Empty() && s.ailing[RequestList].err != nil
}
