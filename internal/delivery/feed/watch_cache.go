package feed

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rota-dev/rota/slot"
)

// watchCache is about slots whose objects come from a list of the API server's watch cache. The cache can answer while
// consistent lists fail, for example because an object was written that cannot be converted: it holds the object as it
// was before. client-go's informers begin with such a list, so slots of a dead owner come with what leader election
// would take over. It is no older than this member's stream of the kind, nor than the versions that a former owner
// handed on. It may lack the latest writes of a former owner that has died. flow.mu guards it.
type watchCache struct {
	// slots have objects from it. at is the version of the oldest of their lists, and since when that was sent.
	slots slot.Set
	at    string
	since time.Time
	// barred are slots for which it must not be asked before the kind has been listed: it is not known which version their
	// former owner wrote.
	barred slot.Set
	// least is the highest version that a former owner handed on.
	least string
	// rechecks is true while a timer is set for the next try to list the kind.
	rechecks bool
}

const (
	// cacheFor is for how long a slot may come with objects that a list of the watch cache has brought.
	cacheFor = 30 * time.Second
	// recheckAfter is the time between two tries to list the kind while slots have objects of the watch cache.
	recheckAfter = 10 * time.Second
)

// recheckKind lists the kind without keeping anything, so that events go on to the store meanwhile. Once it can be
// listed, the slots that have objects of the watch cache are listed again. Otherwise it is tried again later.
func (s *Source) recheckKind() {
	ctx, cancel := s.whileRunning(diagnoseTimeout)
	defer cancel()
	set := s.rechecks(ctx.Err() == nil)
	if set.Empty() {
		return
	}
	sent := time.Now()
	_, err := s.eachListed(ctx, 0, func(runtime.Object) error { return nil })
	s.answeredList(sent, err)
	s.rechecked(err)
	if err == nil {
		s.Refresh(set)
	}
}
