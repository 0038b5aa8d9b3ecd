package delivery

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// sent are the objects of an owned kind that the stream has put into the store, by key: an object that gets another owner
// leaves its slot by an event that shows the new slot only, and the store itself is behind the stream. Other kinds have
// none: nil.
type sent map[string]sentObject

type sentObject struct {
	slot    slot.Slot
	uid     types.UID
	version string
}

func (s *source) newSent() sent {
	if !s.inf.owned() {
		return nil
	}
	return sent{}
}

// goneOn says that an object of an owned kind is not in the slot any more in which the store has it.
func (s *source) goneOn(key string, n slot.Slot) bool {
	if !s.inf.owned() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	is, there := s.sent[key]
	return !there || is.slot != n
}

// bequeath has a mark in place of an object of an owned kind show whose it was: the owner has to hear of it.
func (i *informer) bequeath(mark runtime.Object, key string) {
	if !i.owned() {
		return
	}
	old, exists, err := i.GetIndexer().GetByKey(key)
	if err != nil || !exists {
		return
	}
	from, fromErr := meta.Accessor(old)
	to, toErr := meta.Accessor(mark)
	if fromErr == nil && toErr == nil {
		to.SetOwnerReferences(from.GetOwnerReferences())
	}
}

// note notes an event that was sent. For the slot that an object left this was its last version. s.mu is held.
func (t sent) note(s *source, e watch.Event) {
	if t == nil || e.Object == nil {
		return
	}
	about, err := meta.Accessor(e.Object)
	if err != nil {
		return
	}
	key, version := cache.MetaObjectToName(about).String(), about.GetResourceVersion()
	was, had := t[key]
	n, _, ok := s.inf.slotOf(e.Object)
	if had && (!ok || n != was.slot) && markOf(e.Object) == "" {
		s.see(was.slot, version)
	}
	switch e.Type { //nolint:exhaustive // the others are about no object
	case watch.Deleted:
		delete(t, key)
	case watch.Added, watch.Modified:
		if ok {
			t[key] = sentObject{n, about.GetUID(), version}
		}
	}
}

// newer says that the stream has sent something newer than a version of an object. s.mu of the source is held.
func (t sent) newer(obj runtime.Object, version string) bool {
	if t == nil {
		return false
	}
	key, err := cache.MetaNamespaceKeyFunc(obj)
	return err == nil && resourceversion.Compare(t[key].version, version) > 0
}

// knows says that the stream has sent an event, or something newer about its object. s.mu of the source is held.
func (t sent) knows(e watch.Event, version string) bool {
	key, err := cache.MetaNamespaceKeyFunc(e.Object)
	if err != nil {
		return false
	}
	is, there := t[key]
	return there && resourceversion.Compare(is.version, version) >= 0 || !there && e.Type == watch.Deleted
}

// departed returns the slot in which the store has what a DELETED of a selecting watch is about; false where it has nothing
// older. What the event shows is the state before the object was deleted, or before it left the selector: if it left since
// it got another owner, what a list of that one's slot brought is newer. s.mu is held.
func (t sent) departed(e watch.Event, version string) (slot.Slot, bool) {
	key, err := cache.MetaNamespaceKeyFunc(e.Object)
	if err != nil {
		return 0, false
	}
	was, had := t[key]
	return was.slot, had && resourceversion.Compare(was.version, version) < 0
}
