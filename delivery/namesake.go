package delivery

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// With key UID objects of one name lie in several slots, one after the other, but a store has one place for them. The
// stream of one watch has them in order. A list of some slots comes out of order with the events of the others: what is
// older than what was last sent under that name must not be sent. (rule R15)

// sight is the object last sent under a name, and a version at which it was the one.
type sight struct {
	uid     types.UID
	version string
}

// observe begins to note what is sent, until the function returned was called and the stream is not behind a list.
func (s *source) observe() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inf.share.key != slot.KeyUID || s.inf.owned() {
		return func() {}
	}
	s.observing = true
	if s.names == nil {
		s.names = map[cache.ObjectName]sight{}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.observing = false
		s.observed()
	}
}

// observed ends the notes where nobody needs them. s.mu is held.
func (s *source) observed() {
	if s.floors == nil && !s.observing {
		s.names = nil
	}
}

// missLate records a deletion that the store does not show because a namesake took the place, for a slot that is not open.
func (i *informer) missLate(n slot.Slot, about metav1.Object) {
	if i.share.open.Load().Has(n) {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.miss(n, subject{i.kind, types.NamespacedName{Namespace: about.GetNamespace(), Name: about.GetName()}})
}

// outdated says whether an object at a version is older than a namesake that was sent, and notes it where not. The pump
// calls it.
func (s *source) outdated(obj runtime.Object, version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		return false
	}
	about, ok := obj.(metav1.Object)
	if !ok {
		return false
	}
	key := cache.MetaObjectToName(about)
	last, known := s.names[key]
	if known && last.uid != about.GetUID() && resourceversion.Compare(last.version, version) >= 0 {
		return true
	}
	if !known || resourceversion.Compare(last.version, version) < 0 {
		s.names[key] = sight{about.GetUID(), version}
	}
	return false
}

// takenOver says whether the last object sent under a key lies outside of a set of slots: then what the store
// had of those slots is gone already.
func (s *source) takenOver(key string, set slot.Set) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		return false
	}
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return false
	}
	last, known := s.names[name]
	return known && !set.Has(s.inf.share.Slot("", "", string(last.uid)))
}
