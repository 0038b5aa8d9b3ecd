package delivery

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/slot"
)

// Shown yields the objects in the slots of the informers that a handler was added to and that hold a share, each with
// the name of the primary object that it is about. The handler must be a pointer. The objects must not be changed.
func (s *Share) Shown(user cache.ResourceEventHandler, set slot.Set) iter.Seq2[types.NamespacedName, any] {
	return func(yield func(types.NamespacedName, any) bool) {
		for _, inf := range s.hearing(user, true) {
			for _, obj := range inf.objects(set) {
				if _, about, ok := inf.slotOf(obj); ok && !yield(about.name, obj) {
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
