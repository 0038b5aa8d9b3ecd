package delivery

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

// Traffic counts the objects of a kind that came from the API server, in lists and in events.
type Traffic struct {
	Received uint64
	// Foreign are the objects that were not asked for:
	//
	//   - ShardSelector: none if the server honors the selector, those of all other members if it does not.
	//   - SlotLabel, and owned kinds: mislabelled objects.
	//   - Filter: none, since everything is asked for.
	Foreign uint64
}

// Traffic returns the counts of running informers by sharded kind, both roles of a kind added up.
func (s *Share) Traffic() map[schema.GroupKind]Traffic {
	return s.traffic(func(*informer) bool { return true })
}

// SelectorTraffic is Traffic of the primary role only: owned kinds are selected by a label in every mode.
func (s *Share) SelectorTraffic() map[schema.GroupKind]Traffic {
	return s.traffic(func(inf *informer) bool { return !inf.owned() })
}

func (s *Share) traffic(of func(*informer) bool) map[schema.GroupKind]Traffic {
	out := map[schema.GroupKind]Traffic{}
	for _, inf := range s.active() {
		if !of(inf) {
			continue
		}
		t := out[inf.kind]
		t.Received += inf.source.received.Load()
		t.Foreign += inf.source.foreign.Load()
		out[inf.kind] = t
	}
	return out
}

// count counts an object of slot n in an answer to a request for the slots asked.
func (s *source) count(n slot.Slot, asked slot.Set) {
	s.received.Add(1)
	if !asked.Has(n) {
		s.foreign.Add(1)
	}
}

// mislabelled reports objects. s.mu is not held.
func (s *source) mislabelled(objs ...metav1.Object) {
	if report := s.inf.share.mislabelled; report != nil {
		for _, obj := range objs {
			report(s.inf.kind, obj)
		}
	}
}
