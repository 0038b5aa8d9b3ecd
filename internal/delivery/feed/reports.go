package feed

import (
	"iter"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/slot"
)

// Reports is what a Share reports about its informers: what they hold, what they received and what fails.
type Reports struct {
	*Common
	honor honor
}

// NewReports returns the Reports of a Share's informers.
func NewReports(c *Common) *Reports { return &Reports{Common: c} }

// Stranded returns the names of children in open slots that were deleted before a time and wait for their finalizers,
// although their owners do not exist, by kind. It goes through all children.
func (s *Reports) Stranded(before time.Time) map[schema.GroupKind][]string {
	out, deleted := map[schema.GroupKind][]string{}, metav1.NewTime(before)
	for _, inf := range s.Active() {
		if !inf.Role.Owned() {
			continue
		}
		for _, obj := range inf.Objects(*s.open.Load()) {
			about, err := meta.Accessor(obj)
			if err != nil || len(about.GetFinalizers()) == 0 || !about.GetDeletionTimestamp().Before(&deleted) {
				continue
			}
			if _, owner, ok := inf.SlotOf(obj); ok && !s.Exists(owner.Kind, owner.Name) {
				out[inf.Kind] = append(out[inf.Kind], cache.MetaObjectToName(about).String())
			}
		}
	}
	return out
}

// Traffic counts the objects of a kind that came from the API server, in lists and in events.
type Traffic struct {
	Received uint64
	// Foreign are the objects that were not asked for:
	//
	//   - ShardSelector: none if the server honors the selector, otherwise the objects of all other members.
	//   - SlotLabel, and owned kinds: mislabelled objects.
	//   - Filter: none, since everything is asked for.
	Foreign uint64
}

// Traffic returns the counts of running informers by sharded kind, both roles of a kind added up.
func (s *Reports) Traffic() map[schema.GroupKind]Traffic {
	return s.traffic(func(*Informer) bool { return true })
}

// selectorTraffic is Traffic of the primary role only: owned kinds are selected by a label in every mode.
func (s *Reports) selectorTraffic() map[schema.GroupKind]Traffic {
	return s.traffic(func(inf *Informer) bool { return !inf.Role.Owned() })
}

func (s *Reports) traffic(of func(*Informer) bool) map[schema.GroupKind]Traffic {
	out := map[schema.GroupKind]Traffic{}
	for _, inf := range s.Active() {
		if !of(inf) {
			continue
		}
		t := out[inf.Kind]
		t.Received += inf.Source.received.Load()
		t.Foreign += inf.Source.foreign.Load()
		out[inf.Kind] = t
	}
	return out
}

// Shown yields the objects in the slots of the informers that a handler was added to and that hold a share, each with
// the name of the primary object that it is about. The handler must be a pointer. The objects must not be changed.
func (s *Reports) Shown(user cache.ResourceEventHandler, set slot.Set) iter.Seq2[types.NamespacedName, any] {
	return func(yield func(types.NamespacedName, any) bool) {
		for _, inf := range s.hearing(user, true) {
			for _, obj := range inf.Objects(set) {
				if _, about, ok := inf.SlotOf(obj); ok && !yield(about.Name, obj) {
					return
				}
			}
		}
	}
}

// ShownWhole yields the objects of the informers that a handler was added to and that hold all objects of their kind.
// The handler must be a pointer. The objects must not be changed.
func (s *Reports) ShownWhole(user cache.ResourceEventHandler) iter.Seq[any] {
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
func (s *Reports) hearing(user cache.ResourceEventHandler, sharded bool) []*Informer {
	running := s.Where(func(i *Informer) bool { return i.Running && i.Sharded == sharded })
	return slices.DeleteFunc(running, func(i *Informer) bool { return !slices.Contains(i.users(), user) })
}

// Bookmarkless returns the sharded kinds in whose watches no bookmarks come, in order.
func (s *Reports) Bookmarkless() (out []schema.GroupKind) {
	for _, inf := range s.Active() {
		if inf.Source.bookmarks.dropped() && !slices.Contains(out, inf.Kind) {
			out = append(out, inf.Kind)
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return out
}
