package delivery

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// Write is a request of this member that changes an object. What comes of it is noted for the slots in which the object
// counts, and for those their next owner waits until its informers show it (rule R8). Share.Write makes one before the
// request is sent; one of its methods Answered, Deleted and Lost is called when its outcome is known, while the slots
// cannot move yet. All of them may be called for nil, which is a write that nobody waits for.
type Write struct {
	share *Share
	kind  schema.GroupKind
	name  cache.ObjectName
	// places are where the object counts, by what was known of it before the request was sent. by are the slots that
	// work because of it where nothing else tells.
	places []place
	by     []place
	// uid is that of the object of the name in the stores; "": there was none.
	uid types.UID
}

// place is a slot of a kind's role, which the key in table.Versions stands for.
type place struct {
	key  string
	slot slot.Slot
}

// Write returns what is known of a request that is about to be sent, to change an object of that name. body is the
// object that it carries, if it does; by are the slots on whose behalf it is sent, if any. Objects of sharded kinds
// count in their own slots. Objects of a kind that is cached whole count in the slots by, and in that of their
// controlling owner where the owner's kind is primary. It returns nil for a kind of which no informer of this share
// runs and that is not declared: no cache of this member's could be behind.
func (s *Share) Write(kind schema.GroupKind, name types.NamespacedName, body metav1.Object, by ...slot.Slot) *Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &Write{share: s, kind: kind, name: cache.NewObjectName(name.Namespace, name.Name)}
	r := s.roles[kind]
	if r.parts() == nil && !s.runs(kind, func(i *informer) bool { return !i.sharded }) {
		return nil
	}
	var known []metav1.Object
	if body != nil {
		known = append(known, body)
	}
	for _, inf := range s.informers {
		if inf.kind != kind {
			continue
		}
		if about := inf.stored(w.name); about != nil {
			known = append(known, about)
			w.uid = about.GetUID()
		}
	}
	if name.Name != "" && r.primary && s.key != slot.KeyUID {
		known = append(known, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}})
	}
	for _, about := range known {
		w.places = append(w.places, s.places(kind, about)...)
	}
	if r.primary && s.key == slot.KeyUID && len(w.places) == 0 {
		if n, ok := s.graves.find(subject{kind, name}); ok {
			w.places = append(w.places, place{kind.String(), n})
		}
	}
	for _, n := range by {
		if len(r.parts()) == 0 {
			w.by = append(w.by, place{kind.String(), n})
		}
		for _, part := range r.parts() {
			w.by = append(w.by, place{s.versionKey(kind, part), n})
		}
	}
	if len(r.parts()) == 0 {
		w.places = append(w.places, w.by...) // that is where it counts
	}
	w.places = distinct(w.places)
	return w
}

// stored returns the metadata of an object in the informer's store; nil: there is none of that name.
func (i *informer) stored(name cache.ObjectName) metav1.Object {
	obj, exists, err := i.GetIndexer().GetByKey(name.String())
	if err != nil || !exists {
		return nil
	}
	about, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	return about
}

// places returns where an object counts by itself. s.mu is held.
func (s *Share) places(kind schema.GroupKind, obj metav1.Object) []place {
	var out []place
	parts := s.roles[kind].parts()
	for _, part := range parts {
		if part.primary && (s.key == slot.KeyUID && obj.GetUID() == "" || s.key == slot.KeyName && obj.GetName() == "") {
			continue // a request to create it does not tell
		}
		if n, _, ok := s.slotBy(kind, part, obj); ok {
			out = append(out, place{s.versionKey(kind, part), n})
		}
	}
	if len(parts) > 0 {
		return out
	}
	if n, ok := s.ownerSlot(obj); ok {
		out = append(out, place{kind.String(), n})
	}
	return out
}

// ownerSlot returns the slot of the primary object that an object of a kind that is not sharded belongs to. s.mu is
// held.
func (s *Share) ownerSlot(obj metav1.Object) (slot.Slot, bool) {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil {
		return 0, false
	}
	group, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return 0, false
	}
	owner := schema.GroupKind{Group: group.Group, Kind: ref.Kind}
	if !s.roles[owner].primary {
		return 0, false
	}
	namespace := obj.GetNamespace()
	for _, inf := range s.informers { // of which an owner without a namespace may be in one
		if inf.kind != owner {
			continue
		}
		if about := inf.stored(cache.NewObjectName("", ref.Name)); about != nil && about.GetUID() == ref.UID {
			namespace = ""
		}
	}
	return s.Slot(namespace, ref.Name, string(ref.UID)), true
}

func distinct(places []place) []place {
	var out []place
	for _, p := range places {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// Slots returns the slots of sharded objects that the request is known to change something in: its object's own, and
// those of its controlling owner before and after. It has none before an object has a name, or an owner, that tells.
func (w *Write) Slots() []slot.Slot {
	if w == nil {
		return nil
	}
	var out []slot.Slot
	for _, p := range w.places {
		if !slices.Contains(out, p.slot) {
			out = append(out, p.slot)
		}
	}
	return out
}

// Answered notes the object with which the API server answered: it has the version that this write gave it. Where it
// has none, that is Lost.
func (w *Write) Answered(obj metav1.Object) {
	switch {
	case w == nil:
	case obj.GetResourceVersion() == "":
		w.Lost()
	default:
		w.share.mu.Lock()
		defer w.share.mu.Unlock()
		w.note(obj)
		if obj.GetDeletionTimestamp() != nil && !remains(obj) {
			w.deleted() // it lost its last finalizer
		}
	}
}

// note notes the version of an answer, for the slots that the object was in, too: one that lost its owner is to be seen
// to have. s.mu is held.
func (w *Write) note(obj metav1.Object) {
	for _, p := range distinct(append(w.share.places(w.kind, obj), w.places...)) {
		w.share.note(p.key, p.slot, obj.GetResourceVersion())
	}
	w.share.noteOwn(w.kind, obj, obj.GetResourceVersion())
}

// Version notes the version that this write gave its object, where the answer is about something of the object's. Where
// that has none, it is Lost.
func (w *Write) Version(version string) {
	if w == nil {
		return
	}
	if version == "" {
		w.Lost()
		return
	}
	w.share.mu.Lock()
	defer w.share.mu.Unlock()
	for _, p := range w.places {
		w.share.note(p.key, p.slot, version)
	}
	w.share.noteOwn(w.kind, &metav1.ObjectMeta{Namespace: w.name.Namespace, Name: w.name.Name}, version)
}

// note notes a version that was written. s.mu is held.
func (s *Share) note(key string, n slot.Slot, version string) {
	if s.wrote[key] == nil {
		s.wrote[key] = make([]string, s.slots)
	}
	if resourceversion.Compare(s.wrote[key][n], version) < 0 {
		s.wrote[key][n] = version
	}
}
