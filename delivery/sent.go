package delivery

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// sent are the objects of an owned kind that the stream has put into the store, by key: an object that gets another owner
// leaves its slot by an event that shows the new slot only, and the store itself is behind the stream. Other kinds have
// none: nil.
type sent map[string]sentObject

type sentObject struct {
	slot    slot.Slot
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

// note notes an event that was sent. s.mu of the source is held.
func (t sent) note(i *informer, e watch.Event) {
	if t == nil || e.Object == nil {
		return
	}
	key, err := cache.MetaNamespaceKeyFunc(e.Object)
	if err != nil {
		return
	}
	switch e.Type { //nolint:exhaustive // the others are about no object
	case watch.Deleted:
		delete(t, key)
	case watch.Added, watch.Modified:
		if n, _, ok := i.slotOf(e.Object); ok {
			t[key] = sentObject{n, versionOf(e.Object)}
		}
	}
}

// newer says that the stream has sent something newer than a version of an object. s.mu of the source is held.
func (t sent) newer(obj runtime.Object, version string) bool {
	if t == nil {
		return false
	}
	key, err := cache.MetaNamespaceKeyFunc(obj)
	return err == nil && table.CompareVersions(t[key].version, version) > 0
}

// leaves says whether an event takes an object out of the slots that the stream carries: n is its slot now, if it has
// one.
func (p *pump) leaves(e watch.Event, n slot.Slot, has bool, version string) bool {
	s := p.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pump != p {
		return false
	}
	key, err := cache.MetaNamespaceKeyFunc(e.Object)
	if err != nil {
		return false
	}
	if p.initial != nil {
		_, had := p.initial.sent[key]
		return had && !(has && p.initial.set.Has(n))
	}
	was, had := s.sent[key]
	switch {
	case !had, has && n == was.slot, table.CompareVersions(was.version, version) > 0:
		return false
	case has && s.got[n] > 0 && !s.covered(n, version):
		return false // it goes from one slot to another
	default:
		return !s.covered(was.slot, version)
	}
}

// covered says that a list of the slot showed what came of an event of that version. s.mu is held.
func (s *source) covered(n slot.Slot, version string) bool {
	return s.floors != nil && table.CompareVersions(version, s.floors[n]) <= 0
}

// leave has the store and the handlers see an event that takes an object away, and then that it is gone: of two owners
// that are here both hear of it, as level-triggered reconcilers have to.
func (p *pump) leave(e watch.Event) bool {
	gone := watch.Event{Type: watch.Deleted, Object: e.Object.DeepCopyObject()} // each is transformed by itself
	return p.send(e) && p.send(gone)
}

// replay sends an event that came while slots were listed, and that is newer than the list, where the list may have
// undone it.
func (p *pump) replay(e watch.Event, version string) bool {
	s := p.source
	n, _, ok := s.inf.slotOf(e.Object)
	if p.leaves(e, n, ok, version) {
		return p.leave(e)
	}
	s.mu.Lock()
	wanted := ok && s.got[n] > 0 && !s.sent.newer(e.Object, version)
	if wanted {
		s.see(n, version)
	}
	s.mu.Unlock()
	return !wanted || p.send(e)
}
