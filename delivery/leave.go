package delivery

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// place returns the slot of what an event of an owned kind is about, if it has one, and has the store and the handlers
// see where it takes an object out of the slots that the stream carries. It is false when the reflector has stopped reading.
func (p *pump) place(e watch.Event, version string) (n slot.Slot, has, alive bool) {
	s := p.source
	n, _, has = s.inf.slotOf(e.Object)
	if !s.inf.owned() {
		return n, has, true
	}
	if p.initial == nil && s.told(e) {
		// What the store has under its name, if anything, is a namesake from a list that was behind, of whose end the stream tells.
		return n, false, true
	}
	if e.Type == watch.Deleted && p.initial == nil && s.scope.leaves() {
		// It counts for nothing before it is confirmed.
		s.mu.Lock()
		defer s.mu.Unlock()
		n, has = s.sent.departed(e, version)
		return n, has, true
	}
	return n, has, !p.leaves(e, n, has, version) || p.leave(e)
}

// leaves says whether an event takes an object out of the slots that the stream carries: n is its slot now, if it has
// one. One that is deleted in another slot than the store has it in went there while that was being listed, and neither the list
// nor what the store has of that slot tells of it.
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
	case !had, has && n == was.slot, resourceversion.Compare(was.version, version) > 0:
		return false
	case has && s.got[n] > 0 && !s.covered(n, version) && e.Type != watch.Deleted:
		return false // it goes from one slot to another
	case s.covered(was.slot, version), s.got[was.slot] == 0: // it is being dropped
		return false
	case has && s.got[n] > 0 && s.scope.leaves():
		s.strayed(e, was.slot)
		return false
	default:
		return true
	}
}

// covered says that a list of the slot showed what came of an event of that version. s.mu is held.
func (s *source) covered(n slot.Slot, version string) bool {
	return s.floors != nil && resourceversion.Compare(version, s.floors[n]) <= 0
}

// leave has the store and the handlers see an event that takes an object away, and then that it is gone: of two owners
// that are here both hear of it, as level-triggered reconcilers have to.
func (p *pump) leave(e watch.Event) bool {
	key, err := cache.ObjectToName(e.Object)
	if !p.sendAll(farewells(e.Object)) {
		return false
	}
	if err == nil {
		p.source.mu.Lock()
		defer p.source.mu.Unlock()
		delete(p.source.doubts, key)
		p.source.changed()
	}
	return true
}

// replay sends an event that came while slots were listed, and that is newer than the list, where the list may have
// undone it.
func (p *pump) replay(e watch.Event, version string) bool {
	s := p.source
	n, has, alive := p.place(e, version)
	if !alive {
		return false
	}
	about, ok := e.Object.(metav1.Object)
	s.mu.Lock()
	wanted := ok && has && s.got[n] > 0 && !s.sent.knows(e, version)
	if wanted {
		s.see(n, version)
	}
	s.mu.Unlock()
	return !wanted || p.pass(e, n, about)
}

// superseded notes a doubt about an object that an event showed in a slot that was being listed, where the list is newer and did not
// show it although the store has it in another slot: its label may be wrong.
func (s *source) superseded(e watch.Event, version string) {
	n, _, has := s.inf.slotOf(e.Object)
	if !s.inf.owned() || !s.scope.leaves() || !has || e.Type == watch.Deleted {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was, older := s.sent.departed(e, version)
	if older && was != n && s.got[was] > 0 && s.got[n] > 0 && !s.covered(was, version) {
		s.strayed(e, was)
	}
}
