package sim

import (
	"context"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// share models a node's delivery.Share, over the modelled informer. In scripts there are no objects, and it answers
// after a moment, unless that is held.
type share struct {
	n *Node
	// held are the slots that this node holds, and heard those whose events reach the handler.
	held, heard slot.Set
}

var _ controllers.Share = (*share)(nil)

// kind is the kind of the modelled objects. An object's name determines its slot.
var kind = schema.GroupKind{Kind: goneKind}

func (s *share) Held() slot.Set { return s.held }

func (s *share) Holds(of slot.Slot) bool { return s.held.Has(of) }

func (s *share) Hold(set slot.Set) {
	s.held = s.held.Union(set)
	if s.n.w.wild {
		s.n.informer.hold(set)
	}
}

func (s *share) HoldAnew(set slot.Set) {
	s.held = s.held.Union(set)
	if s.n.w.wild {
		s.n.informer.holdAnew(set)
	}
}

func (s *share) Warm(_ context.Context, set slot.Set) error {
	if !s.n.w.wild {
		s.answers(Warm)
		return nil
	}
	return s.await(set, func(then func(slot.Set)) { s.n.informer.settled(set, then) })
}

func (s *share) Load(
	_ context.Context, set slot.Set, cause table.Cause, versions table.Versions, held bool,
) error {
	if !s.n.w.wild {
		s.answers(Load)
		return nil
	}
	a := member.Load{Slots: set, Cause: cause, Versions: versions, Held: held}
	return s.await(set, func(then func(slot.Set)) { s.n.informer.load(a, then) })
}

// await waits until the informer has slots. It returns an error if some were released meanwhile.
func (s *share) await(set slot.Set, begin func(then func(slot.Set))) error {
	var got slot.Set
	s.n.runner.wait(func(resume func()) {
		begin(func(held slot.Set) {
			got = held
			resume()
		})
	})
	if released := set.Minus(got); !released.Empty() {
		return delivery.ErrReleased
	}
	return nil
}

// answers waits as a script wants it.
func (s *share) answers(name string) {
	s.n.runner.wait(func(resume func()) { s.n.Link.answers(name, resume) })
}

func (s *share) CatchUp(_ context.Context, set slot.Set) error {
	s.n.runner.wait(func(resume func()) {
		if s.n.w.wild {
			s.n.informer.catchUp(set, resume)
		} else {
			s.n.Link.whenReleased(Drain, resume)
		}
	})
	return nil
}

func (s *share) OpenToReads(slot.Set) {}

func (s *share) Unmute(set slot.Set) { s.heard = s.heard.Union(set) }

func (s *share) Shut(set slot.Set) { s.heard = s.heard.Minus(set) }

// Gather returns, after a while, the objects of which something is to be done. The others are left out, to save time.
func (s *share) Gather(set slot.Set) map[schema.GroupKind]delivery.Opened {
	w := s.n.w
	if !w.wild {
		return nil
	}
	s.n.runner.wait(func(resume func()) {
		w.after(w.delay(time.Millisecond, 100*time.Millisecond), func() { s.n.local(resume) })
	})
	var out delivery.Opened
	if w.spoiled.forgotten {
		return nil
	}
	for _, at := range set.Slots() {
		for i := range keysPerSlot {
			k := key{at, i}
			if of := &w.objects.of[k.index()]; of.asked <= of.reconciled {
				continue
			}
			switch (int(at) + i) % 3 {
			case 0:
				out.Changed = append(out.Changed, k.name())
			case 1:
				out.Recent = append(out.Recent, k.name())
			default:
				out.Others = append(out.Others, k.name())
			}
		}
	}
	return map[schema.GroupKind]delivery.Opened{kind: out}
}

func (s *share) Release(set slot.Set) {
	s.held, s.heard = s.held.Minus(set), s.heard.Minus(set)
	if s.n.w.wild {
		s.n.informer.release(set)
		s.n.Work.record.Forget(set)
	}
}

func (s *share) Locate(_ schema.GroupKind, name types.NamespacedName) (slot.Slot, bool) {
	return keyOf(name).slot, true
}

func (s *share) Stored(_ schema.GroupKind, name types.NamespacedName) (slot.Slot, bool) {
	return keyOf(name).slot, true
}

// UID returns the same UID for successive objects of a name.
func (s *share) UID(_ schema.GroupKind, name types.NamespacedName) (types.UID, bool) {
	k := keyOf(name)
	if s.n.Work.gone[k] || s.n.w.wild && !s.n.informer.Has[k.index()].Exists {
		return "", false
	}
	return types.UID(strconv.Itoa(k.index())), true
}

func (s *share) Exists(kind schema.GroupKind, name types.NamespacedName) bool {
	_, exists := s.UID(kind, name)
	return exists
}

func (s *share) Size(schema.GroupKind) int { return s.held.Len() * keysPerSlot }

func (s *share) SlotOf(schema.GroupKind, metav1.Object) (slot.Slot, bool) { return 0, false }

func (s *share) Live(context.Context, schema.GroupKind, types.NamespacedName) (bool, error) {
	panic("slots are by name")
}

func (s *share) Lacks(schema.GroupKind, slot.Slot) bool { return false }

func (s *share) Stale(schema.GroupKind) bool { return false }

func (s *share) Ended() []schema.GroupKind { return nil }

func (s *share) Heard(cache.SharedIndexInformer) bool { return true }

func (s *share) IsLedElsewhere() bool { return false }

func (s *share) ShowOwn(context.Context, schema.GroupKind, types.NamespacedName, string) {}

func (s *share) ShowWritten(context.Context, slot.Slot) error { return nil }
