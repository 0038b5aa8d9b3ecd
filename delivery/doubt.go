package delivery

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// With SlotLabel an object whose label is removed or changed leaves the watch with the same DELETED as one that was
// deleted: its last state that was selected, at the version of the change. Nothing in it tells the two apart. Where a list
// does not show an object that the store has, it is the same. So each of them is looked up by its name before it counts as
// deleted.
//
// An object that exists stays in the store. The watch says nothing about it any more, so it is looked up again
// and again until its label is right, when the watch brings it, or it is gone.

// doubt is an object in the store that the watch does not tell of, or did not when it was last heard of. The fields are
// guarded by source.mu; a doubt in the map source.doubts is current, others are void.
type doubt struct {
	key  cache.ObjectName
	slot slot.Slot
	uid  types.UID
	last runtime.Object // as it was last sent to the store, or as DELETED showed it
	// gone is an event that has not been passed on: a DELETED, or a MODIFIED that leads to a slot whose list did not show the
	// object. Its type is "" where the object is known to exist.
	gone    watch.Event
	version string // of gone, or else of the last state sent
	due     time.Time
	pause   time.Duration
	busy    bool
}

// unsure says whether the object may be gone by a version. s.mu is held.
func (s *source) unsure(slots []slot.Slot, version string) bool {
	for _, d := range s.doubts {
		if d.gone.Type != "" && resourceversion.Compare(d.version, version) <= 0 && (slots == nil || slices.Contains(slots, d.slot)) {
			return true
		}
	}
	return false
}

// doubtful decides what becomes of an event that is wanted. It returns the events to send now. The pump calls it.
func (s *source) doubtful(e watch.Event, n slot.Slot, about metav1.Object) []watch.Event {
	if !s.scope.leaves() {
		return []watch.Event{e}
	}
	key := cache.MetaObjectToName(about)
	wrong := e.Type != watch.Deleted && !s.scope.right(about)
	s.mu.Lock()
	out := []watch.Event{e}
	d := s.doubts[key]
	if d != nil && resourceversion.Compare(about.GetResourceVersion(), d.version) <= 0 {
		if e.Type != watch.Deleted && !wrong && d.gone.Type == "" && about.GetResourceVersion() == d.version {
			delete(s.doubts, key) // the watch tells of it again
		}
		s.mu.Unlock()
		return nil // no newer than what a look-up showed
	}
	delete(s.doubts, key)
	if d != nil && d.uid != about.GetUID() {
		// Its namesake came, so it is gone for sure.
		out = append(s.ending(d, d.version), e)
	}
	switch {
	case e.Type == watch.Deleted:
		out = out[:len(out)-1]
		s.doubts[key] = &doubt{key: key, slot: n, uid: about.GetUID(), last: e.Object, gone: e, version: about.GetResourceVersion()}
	case wrong:
		s.doubts[key] = s.stray(key, n, about, e.Object.DeepCopyObject()) // a transform may change what is sent
	}
	if d != nil {
		s.changed()
	}
	s.mu.Unlock()
	s.suspect()
	if wrong {
		s.mislabelled(about)
	}
	return out
}

func (s *source) stray(key cache.ObjectName, n slot.Slot, about metav1.Object, obj runtime.Object) *doubt {
	return &doubt{
		key: key, slot: n, uid: about.GetUID(), last: obj, version: about.GetResourceVersion(),
		due: time.Now().Add(firstCheck), pause: firstCheck,
	}
}

// strayed notes a doubt about an object that the store has in slot n, and that an event shows in another one: the list of that one is
// newer than the event and did not show it. It may have gone on from there, or its label is wrong. s.mu is held.
func (s *source) strayed(e watch.Event, n slot.Slot) {
	about, err := meta.Accessor(e.Object)
	if err != nil {
		return
	}
	key := cache.MetaObjectToName(about)
	s.doubts[key] = &doubt{
		key: key, slot: n, uid: about.GetUID(), last: e.Object, version: about.GetResourceVersion(),
		gone: watch.Event{Type: watch.Modified, Object: e.Object.DeepCopyObject()}, // it may be replayed, too
	}
	s.suspect()
}

// ending are the events that tell of the end of the object in doubt. Where it ended in another slot than the store has it in, both
// hear of it.
func (s *source) ending(d *doubt, version string) []watch.Event {
	obj := d.gone.Object
	if d.gone.Type == "" {
		obj = d.last.DeepCopyObject()
		if about, err := meta.Accessor(obj); err == nil {
			about.SetResourceVersion(version)
		}
	}
	if n, _, ok := s.inf.slotOf(obj); ok && n == d.slot {
		return []watch.Event{{Type: watch.Deleted, Object: obj}}
	}
	return farewells(obj)
}

// farewells tell of an object that leaves its slot for another one, and is gone. Each is transformed by itself.
func farewells(obj runtime.Object) []watch.Event {
	return []watch.Event{{Type: watch.Modified, Object: obj}, {Type: watch.Deleted, Object: obj.DeepCopyObject()}}
}

// forgive forgets the doubts about slots. s.mu is held.
func (s *source) forgive(set slot.Set) {
	for key, d := range s.doubts {
		if set.Has(d.slot) {
			delete(s.doubts, key)
		}
	}
}

// keepStrays notes objects of a list that the watch may not tell of. s.mu is held.
func (s *source) keepStrays(strays []runtime.Object) {
	for _, obj := range strays {
		n, _, ok := s.inf.slotOf(obj)
		if about, err := meta.Accessor(obj); err == nil && ok && !s.sent.newer(obj, about.GetResourceVersion()) && !s.outran(about) {
			key := cache.MetaObjectToName(about)
			s.doubts[key] = s.stray(key, n, about, obj)
		}
	}
	if len(strays) > 0 {
		s.suspect()
	}
}
