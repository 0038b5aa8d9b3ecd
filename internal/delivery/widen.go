package delivery

import (
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// The API server may refuse the label by which objects are selected, for example because of an admission policy. No
// watch that selects by the label brings such objects. So informers of their kind then ask for all objects of the kind,
// as with Filter, and keep those of their slots (rule R11).

// widening asks for everything while wide is true, and otherwise for what a scope asks for.
type widening struct {
	sharding.Scope
	wide atomic.Bool
}

func (w *widening) Narrow(req *sharding.Request, slots slot.Set) slot.Set {
	if w.wide.Load() {
		return sharding.Everything
	}
	return w.Scope.Narrow(req, slots)
}

func (w *widening) Right(obj metav1.Object) bool { return w.wide.Load() || w.Scope.Right(obj) }

// Widen has the informers of these kinds, and of no others, ask for all objects instead of those with the right label.
// Those that asked for something else before list the slots that they hold again; objects that only the wider list
// shows are looked up from then on. A watch narrows when it is next opened.
func (s *Share) Widen(kinds map[schema.GroupKind]bool) {
	s.mu.Lock()
	s.wide = kinds
	s.mu.Unlock()
	for _, inf := range s.active() {
		scope, ok := inf.source.scope.(*widening)
		if on := kinds[inf.kind]; ok && scope.wide.Swap(on) != on {
			inf.source.refresh(inf.held())
		}
	}
}

// isWide reports whether the source asks for everything because of Widen.
func (s *source) isWide() bool {
	scope, ok := s.scope.(*widening)
	return ok && scope.wide.Load()
}
