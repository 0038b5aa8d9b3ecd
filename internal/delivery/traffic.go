package delivery

import (
	"iter"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/slot"
)

// Traffic counts the objects of a kind that came from the API server, in lists and in events.
type Traffic struct {
	Received uint64
	// Foreign are the objects that were not asked for:
	//
	//   - ShardSelector: none if the server honors the selector, those of all other members if it does not.
	//   - SlotLabel, and owned kinds: mislabelled objects.
	//   - Filter: none, since everything is asked for.
	Foreign uint64
}

// Traffic returns the counts of running informers by sharded kind, both roles of a kind added up.
func (s *Share) Traffic() map[schema.GroupKind]Traffic {
	return s.traffic(func(*informer) bool { return true })
}

// selectorTraffic is Traffic of the primary role only: owned kinds are selected by a label in every mode.
func (s *Share) selectorTraffic() map[schema.GroupKind]Traffic {
	return s.traffic(func(inf *informer) bool { return !inf.role.Owned() })
}

func (s *Share) traffic(of func(*informer) bool) map[schema.GroupKind]Traffic {
	out := map[schema.GroupKind]Traffic{}
	for _, inf := range s.active() {
		if !of(inf) {
			continue
		}
		t := out[inf.kind]
		t.Received += inf.source.received.Load()
		t.Foreign += inf.source.foreign.Load()
		out[inf.kind] = t
	}
	return out
}

// count counts an object of slot n in an answer to a request for the slots asked.
func (s *source) count(n slot.Slot, asked slot.Set) {
	s.received.Add(1)
	if !asked.Has(n) {
		s.foreign.Add(1)
	}
}

// mislabelled reports objects. s.mu is not held.
func (s *source) mislabelled(objs ...metav1.Object) {
	if report := s.inf.share.mislabelled; report != nil {
		for _, obj := range objs {
			report(s.inf.kind, obj)
		}
	}
}

// Shown yields the objects in the slots of the informers that a handler was added to and that hold a share, each with
// the name of the primary object that it is about. The handler must be a pointer. The objects must not be changed.
func (s *Share) Shown(user cache.ResourceEventHandler, set slot.Set) iter.Seq2[types.NamespacedName, any] {
	return func(yield func(types.NamespacedName, any) bool) {
		for _, inf := range s.hearing(user, true) {
			for _, obj := range inf.objects(set) {
				if _, about, ok := inf.slotOf(obj); ok && !yield(about.Name, obj) {
					return
				}
			}
		}
	}
}

// ShownWhole yields the objects of the informers that a handler was added to and that hold all objects of their kind.
// The handler must be a pointer. The objects must not be changed.
func (s *Share) ShownWhole(user cache.ResourceEventHandler) iter.Seq[any] {
	return func(yield func(any) bool) {
		for _, inf := range s.hearing(user, false) {
			for _, obj := range inf.GetStore().List() {
				if !yield(obj) {
					return
				}
			}
		}
	}
}

// hearing returns the running informers that a handler was added to.
func (s *Share) hearing(user cache.ResourceEventHandler, sharded bool) []*informer {
	s.mu.Lock()
	running := slices.DeleteFunc(slices.Concat(s.informers, s.besides), func(i *informer) bool {
		return !i.running || i.sharded != sharded
	})
	s.mu.Unlock()
	return slices.DeleteFunc(running, func(i *informer) bool { return !i.has(user) })
}

func (i *informer) has(user cache.ResourceEventHandler) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for h := range i.handlers {
		if h.user == user {
			return true
		}
	}
	return false
}
