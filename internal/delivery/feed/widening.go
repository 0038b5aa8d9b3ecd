package feed

import (
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// The API server may refuse the label by which objects are selected, for example because of an admission policy. No
// watch that selects by the label brings such objects. So informers of their kind then ask for all objects of the kind,
// as with Filter, and keep the objects of their slots (rule R11).

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
