package delivery

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/delivery/written"
	"github.com/rota-dev/rota/slot"
)

// Write is a request of this member that changes an object. Its result is noted for the slots in which the object
// counts: the next owner of a slot waits until its informers show the result (rule R8). Share.Write makes a Write
// before the request is sent. When the outcome is known, and while the slots cannot move yet, the caller calls one of
// Answered, Version, Deleted and Lost. All methods may be called on nil, a write that nobody has to wait for.
type Write struct {
	share *Share
	kind  schema.GroupKind
	name  cache.ObjectName
	// places are where the object counts, by what was known before the request was sent. by are the places to use if
	// nothing else tells: those of the slots that caused the write.
	places []written.Place
	by     []written.Place
	// uid is that of the object of the name in the stores; "": there was none.
	uid types.UID
	// author is the controller that sends it; "": none.
	author string
	// awaited: reads wait for it. stored are the objects of the name in the stores then.
	awaited bool
	stored  []metav1.Object
}

// Author says whose reconcile sends the write: ShowOwn waits for it then. It returns w.
func (w *Write) Author(controller string) *Write {
	if w != nil {
		w.author = controller
	}
	return w
}

// Write returns a Write for a request that is about to be sent to change the object of that name. body is the object
// that the request carries, or nil; by are the slots on whose behalf it is sent, if any.
//
//   - Objects of sharded kinds count in their own slots.
//   - If an informer of NewWholeInformer holds the kind, its objects count in the slots by that are of duties, too.
//   - Objects of a kind that is cached whole count in the slots by, and in their controlling owner's slot if the
//     owner's kind is primary.
//
// Write returns nil for a kind that is not declared and of which no informer of this share runs: no cache of this
// member can be behind.
func (s *Share) Write(kind schema.GroupKind, name types.NamespacedName, body metav1.Object, by ...slot.Slot) *Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &Write{share: s, kind: kind, name: cache.NewObjectName(name.Namespace, name.Name)}
	r := s.Role(kind)
	parts := r.Parts()
	beside := s.runsBeside(kind)
	w.awaited = s.pending != nil && (len(parts) > 0 || beside)
	if parts == nil && !beside && !s.runs(kind) {
		return nil
	}
	var known []metav1.Object
	if body != nil {
		known = append(known, body)
	}
	for _, inf := range slices.Concat(s.informers, s.besides) {
		if inf.kind != kind {
			continue
		}
		about := inf.stored(w.name)
		if about == nil {
			continue
		}
		w.uid = about.GetUID()
		if !inf.apart {
			known = append(known, about)
		}
		if w.awaited {
			w.stored = append(w.stored, about)
		}
	}
	if name.Name != "" && r.Primary && s.Key() != slot.KeyUID {
		known = append(known, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace,
			Name: name.Name}})
	}
	for _, about := range known {
		w.places = append(w.places, s.places(kind, r, about)...)
	}
	if r.Primary && s.Key() == slot.KeyUID && len(w.places) == 0 {
		if n, ok := s.tombstones.find(sharding.Subject{Kind: kind, Name: name}); ok {
			w.places = append(w.places, written.Place{Key: kind.String(), Slot: n})
		}
	}
	for _, n := range by {
		if len(parts) == 0 {
			w.by = append(w.by, written.Place{Key: kind.String(), Slot: n})
		}
		for _, part := range parts {
			w.by = append(w.by, written.Place{Key: versionKey(kind, r, part), Slot: n})
		}
	}
	if len(parts) == 0 {
		w.places = append(w.places, w.by...)
	}
	for _, n := range by {
		if beside && int(n) >= int(s.SlotCount()) {
			w.places = append(w.places, written.Place{Key: kind.String() + wholeSuffix, Slot: n})
		}
	}
	w.places = distinct(w.places)
	return w
}

// stored returns the metadata of the object of that name in the informer's store; nil if there is none.
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

// places returns where an object counts by its own content. s.mu is held.
func (s *Share) places(kind schema.GroupKind, r sharding.Role, obj metav1.Object) []written.Place {
	var out []written.Place
	parts := r.Parts()
	for _, part := range parts {
		if part.Primary && (s.Key() == slot.KeyUID && obj.GetUID() == "" || s.Key() == slot.KeyName && obj.GetName() == "") {
			continue // a request to create the object does not have that yet
		}
		if n, _, ok := s.SlotBy(kind, part, obj); ok {
			out = append(out, written.Place{Key: versionKey(kind, r, part), Slot: n})
		}
	}
	if len(parts) > 0 {
		return out
	}
	if n, ok := s.ownerSlot(obj); ok {
		out = append(out, written.Place{Key: kind.String(), Slot: n})
	}
	return out
}

// ownerSlot returns the slot of the primary object that owns an object of an unsharded kind. s.mu is held.
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
	if !s.Sharded(owner) {
		return 0, false
	}
	namespace := obj.GetNamespace()
	for _, inf := range s.informers { // the owner may be without a namespace
		if inf.kind != owner {
			continue
		}
		if about := inf.stored(cache.NewObjectName("", ref.Name)); about != nil && about.GetUID() == ref.UID {
			namespace = ""
		}
	}
	return s.Slot(namespace, ref.Name, string(ref.UID)), true
}

func distinct(places []written.Place) []written.Place {
	var out []written.Place
	for _, p := range places {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// Slots returns the slots of sharded objects that the request is known to affect: the object's own slot, and those of
// its controlling owner before and after. It is empty while a name or an owner is missing that would tell.
func (w *Write) Slots() []slot.Slot {
	if w == nil {
		return nil
	}
	var out []slot.Slot
	for _, p := range w.places {
		if !slices.Contains(out, p.Slot) {
			out = append(out, p.Slot)
		}
	}
	return out
}

// Answered notes the object that the API server answered with, which has the version of this write. An object without a
// version counts as Lost.
func (w *Write) Answered(obj metav1.Object) {
	switch {
	case w == nil:
	case obj.GetResourceVersion() == "":
		w.Lost()
	default:
		w.share.mu.Lock()
		defer w.share.mu.Unlock()
		w.noteAnswer(obj)
		if obj.GetDeletionTimestamp() != nil && !remains(obj) {
			w.deleted() // it lost its last finalizer
			if ends(obj) {
				w.awaitGone(obj)
			}
		}
	}
}

// noteAnswer notes the version of an answer, also for the slots that the object was in before: they must see that it
// left. s.mu is held.
func (w *Write) noteAnswer(obj metav1.Object) {
	for _, p := range distinct(append(w.share.places(w.kind, w.share.Role(w.kind), obj), w.places...)) {
		w.share.record.Note(p, obj.GetResourceVersion())
	}
	w.noteOwn(obj, obj.GetResourceVersion())
	w.await(obj, obj.GetResourceVersion())
}

// Version notes the version that this write gave its object, if the answer is not the object itself, as for
// subresources. "" counts as Lost.
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
		w.share.record.Note(p, version)
	}
	w.noteOwn(&metav1.ObjectMeta{Namespace: w.name.Namespace, Name: w.name.Name}, version)
	w.await(nil, version)
}

// Missing notes that the API server has no object that a deletion named.
func (w *Write) Missing() {
	if w == nil {
		return
	}
	w.share.mu.Lock()
	defer w.share.mu.Unlock()
	w.deleted()
}

// Deleted notes the API server's answer to a deletion. obj is the object that it answered with. If it answered with a
// Status, obj has the UID of the object alone; nil: the Status does not tell it.
func (w *Write) Deleted(obj metav1.Object) {
	if w == nil {
		return
	}
	if obj == nil {
		obj = &metav1.ObjectMeta{}
	}
	s := w.share
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj.GetResourceVersion() != "" {
		w.noteAnswer(obj)
		if remains(obj) {
			return // its informers will show that version
		}
	}
	w.deleted()
	if obj.GetDeletionTimestamp() == nil || ends(obj) {
		w.awaitGone(obj)
	}
}

// ends reports whether an object with a deletionTimestamp, whose finalizers are gone, is removed with the answer. A
// Namespace has no grace period, and finalizers of its own in its spec: it may stay for long.
func ends(obj metav1.Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return grace != nil && *grace == 0
}

// remains reports whether a deleted object still exists because finalizers or a grace period keep it.
func remains(obj metav1.Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return obj.GetDeletionTimestamp() != nil && (len(obj.GetFinalizers()) > 0 || grace != nil && *grace > 0)
}

// deleted notes that the object does not exist any more. s.mu is held.
func (w *Write) deleted() {
	for _, p := range w.anywhere() {
		w.share.record.Deleted(p, w.name.AsNamespacedName(), w.uid)
	}
}

// Lost notes that the write's version is not known, nor whether the write was made: the answer was lost, could not be
// read, or does not tell. Call it when the request has been given up. The API server may still admit the request; the
// caller has to wait that out.
func (w *Write) Lost() {
	if w == nil {
		return
	}
	w.share.mu.Lock()
	defer w.share.mu.Unlock()
	for _, p := range w.anywhere() {
		w.share.record.Lost(p)
	}
}

// anywhere returns the places where the object counts, or else those for which the write was made, as far as this
// member holds their slots. Whoever writes on behalf of a duty has it.
func (w *Write) anywhere() []written.Place {
	places := w.places
	if len(places) == 0 {
		places = w.by
	}
	return slices.DeleteFunc(slices.Clone(places), func(p written.Place) bool {
		return !w.share.Holds(p.Slot) && int(p.Slot) < int(w.share.SlotCount())
	})
}
