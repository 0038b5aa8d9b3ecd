package delivery

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/resourceversion"
)

// A look-up may be ahead of the stream. What the stream tells later of an object of which a look-up has shown that it is
// gone, or elsewhere, must not bring it back. Nor must a list, or what is replayed after it, bring back an object of an owned kind that the
// stream has taken out of the store while slots were listed; nor the stream one that a list had shown, and that was in a slot lost since, or
// that the next list of the slot did not show.

// farewell is an object that is not in the store any more, as a look-up showed. state is the version of what it showed; "" where
// the object is gone for good.
type farewell struct {
	uid   types.UID
	state string
}

// identity tells an object from its namesakes.
type identity struct {
	name cache.ObjectName
	uid  types.UID
}

// depart notes an event that was sent, where it takes an object out of the store while slots are listed: the one that it is about, or
// a namesake whose place that takes, be it for a moment. s.sent does not know of the event yet. s.mu is held.
func (s *source) depart(e watch.Event) {
	about, err := meta.Accessor(e.Object)
	if err != nil || s.warming.Empty() || markOf(e.Object) != "" {
		return
	}
	name := cache.MetaObjectToName(about)
	if was, had := s.sent[name.String()]; had && was.uid != about.GetUID() {
		s.leftAt(identity{name, was.uid}, about.GetResourceVersion())
	}
	if e.Type == watch.Deleted {
		s.leftAt(identity{name, about.GetUID()}, about.GetResourceVersion())
	}
}

// lose notes that what the stream has sent under a key goes since its slot was lost, or since a list does not show it any more.
func (s *source) lose(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, there := s.sent[key]
	if !there || resourceversion.Compare(is.version, s.position) <= 0 {
		return
	}
	if name, err := cache.ParseObjectName(key); err == nil {
		s.leftAt(identity{name, is.uid}, is.version)
	}
}

// leftAt notes that states of an object from before a version are not to come back. s.mu is held.
func (s *source) leftAt(id identity, version string) {
	if s.left == nil {
		s.left = map[identity]string{}
	}
	if resourceversion.Compare(s.left[id], version) < 0 {
		s.left[id] = version
	}
	if resourceversion.Compare(s.leftMax, version) < 0 {
		s.leftMax = version
	}
}

// outrun notes that a look-up at a version showed that the object in doubt is gone, or in slots that the stream does not
// carry. s.mu is held.
func (s *source) outrun(d *doubt, state, version string) {
	if state == "" && !s.warming.Empty() {
		// The list, and what is told again after it, may be older than the look-up even when the stream has passed that.
		s.leftAt(identity{d.key, d.uid}, version)
	}
	if resourceversion.Compare(version, s.position) <= 0 {
		return
	}
	if s.ahead == nil {
		s.ahead = map[cache.ObjectName]farewell{}
	}
	s.ahead[d.key] = farewell{d.uid, state}
	if resourceversion.Compare(s.aheadMax, version) < 0 {
		s.aheadMax = version
	}
}

// caughtUp forgets the look-ups that the position has passed, and what left the store. s.mu is held.
func (s *source) caughtUp() {
	if s.left != nil && s.warming.Empty() && resourceversion.Compare(s.position, s.leftMax) >= 0 {
		s.left, s.leftMax = nil, ""
	}
	if s.ahead != nil && resourceversion.Compare(s.position, s.aheadMax) >= 0 {
		s.ahead, s.aheadMax = nil, ""
	}
}

// outran says that a look-up has shown what became of a state of an object, or that a later one has left the store. The state that it
// showed is not among these: its slot may be gained yet. s.mu is held.
func (s *source) outran(about metav1.Object) bool {
	if s.left != nil && resourceversion.Compare(s.left[identity{cache.MetaObjectToName(about), about.GetUID()}], about.GetResourceVersion()) > 0 {
		return true
	}
	if s.ahead == nil {
		return false
	}
	f, ok := s.ahead[cache.MetaObjectToName(about)]
	return ok && f.uid == about.GetUID() && (f.state == "" || resourceversion.Compare(about.GetResourceVersion(), f.state) < 0)
}

// told says that an event is about a state of an object that later ones, or its end, were told of before.
func (s *source) told(e watch.Event) bool {
	about, err := meta.Accessor(e.Object)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// What came of a DELETED bears its version, or that of the look-up, which may be the same.
	left := s.left[identity{cache.MetaObjectToName(about), about.GetUID()}]
	return s.outran(about) || e.Type == watch.Deleted && resourceversion.Compare(left, about.GetResourceVersion()) >= 0
}

// overtaken says that a list shows an object in a state that is older than what was sent of it. Where it is newer than what was
// in doubt there is no doubt any more.
func (s *source) overtaken(obj runtime.Object) bool {
	about, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	version := about.GetResourceVersion()
	if s.sent.newer(obj, version) || s.outran(about) {
		return true
	}
	key := cache.MetaObjectToName(about)
	if d := s.doubts[key]; d != nil && s.inf.owned() && resourceversion.Compare(d.version, version) <= 0 {
		delete(s.doubts, key)
		s.changed()
	}
	return false
}
