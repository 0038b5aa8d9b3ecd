package delivery

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// ownedSuffix ends the key in table.Versions of the owned role of a kind that is primary as well. The two roles have
// streams of their own, and neither may wait for a version that only the other one carries.
const ownedSuffix = "/owned"

// versionKey returns the key in table.Versions of a part of a kind's role. s.mu is held.
func (s *Share) versionKey(kind schema.GroupKind, part role) string {
	if part.owners != nil && s.roles[kind].primary {
		return kind.String() + ownedSuffix
	}
	return kind.String()
}

func (i *informer) versionKey() string {
	i.share.mu.Lock()
	defer i.share.mu.Unlock()
	return i.share.versionKey(i.kind, i.role)
}

// Wrote notes that this member wrote an object in the slot and got the version: Versions will be at least that. The slot is
// that of SlotOf; see WroteObject.
func (s *Share) Wrote(kind schema.GroupKind, n slot.Slot, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(kind.String(), n, version)
}

// WroteObject is Wrote for all slots of an object, with the object's version.
func (s *Share) WroteObject(kind schema.GroupKind, obj metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, part := range s.roles[kind].parts() {
		if n, _, ok := s.slotBy(kind, part, obj); ok {
			s.note(s.versionKey(kind, part), n, obj.GetResourceVersion())
		}
	}
}

// note notes a version that was written. s.mu is held.
func (s *Share) note(key string, n slot.Slot, version string) {
	if s.wrote[key] == nil {
		s.wrote[key] = make([]string, s.slots)
	}
	if table.CompareVersions(s.wrote[key][n], version) < 0 {
		s.wrote[key][n] = version
	}
}

// Versions returns, per sharded kind, the highest resourceVersion that this member saw or wrote in the slots,
// deletions included (rule R8). Kinds without any are left out. A kind that is primary and owned has two keys.
func (s *Share) Versions(set slot.Set) table.Versions {
	out := table.Versions{}
	add := func(key, version string) {
		if table.CompareVersions(out[key], version) < 0 {
			out[key] = version
		}
	}
	slots := set.Slots()
	for _, inf := range s.active() {
		add(inf.versionKey(), inf.source.highest(slots))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, versions := range s.wrote {
		for _, n := range slots {
			add(key, versions[n])
		}
	}
	return out
}
