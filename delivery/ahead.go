package delivery

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/table"
)

// A look-up may be ahead of the stream. What the stream tells later of an object of which a look-up has shown that it is
// gone, or elsewhere, must not bring it back.

// farewell is an object that is not in the store any more, as a look-up showed. state is the version of what it showed; "" where
// the object is gone for good.
type farewell struct {
	uid   types.UID
	state string
}

// outrun notes that a look-up at a version showed that the object in doubt is gone, or in slots that the stream does not
// carry. s.mu is held.
func (s *source) outrun(d *doubt, state, version string) {
	if table.CompareVersions(version, s.position) <= 0 {
		return
	}
	if s.ahead == nil {
		s.ahead = map[cache.ObjectName]farewell{}
	}
	s.ahead[d.key] = farewell{d.uid, state}
	if table.CompareVersions(s.aheadMax, version) < 0 {
		s.aheadMax = version
	}
}

// caughtUp forgets the look-ups that the position has passed. s.mu is held.
func (s *source) caughtUp() {
	if s.ahead != nil && table.CompareVersions(s.position, s.aheadMax) >= 0 {
		s.ahead, s.aheadMax = nil, ""
	}
}

// outran says that a look-up has shown what became of a state of an object. The state that it showed is not among these: its
// slot may be gained yet. s.mu is held.
func (s *source) outran(about metav1.Object) bool {
	if s.ahead == nil {
		return false
	}
	f, ok := s.ahead[cache.MetaObjectToName(about)]
	return ok && f.uid == about.GetUID() && (f.state == "" || table.CompareVersions(about.GetResourceVersion(), f.state) < 0)
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
	if d := s.doubts[key]; d != nil && s.inf.owned() && table.CompareVersions(d.version, version) <= 0 {
		delete(s.doubts, key)
		s.changed()
	}
	return false
}
