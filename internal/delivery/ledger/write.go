package ledger

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// Write is a request of this member that changes an object. Its result is noted for the slots in which the object
// counts: the next owner of a slot waits until its informers show the result (rule R8). Ledger.Write makes a Write
// before the request is sent. When the outcome is known, and while the slots cannot move yet, the caller calls one of
// Answered, Version, Deleted and Lost. All methods may be called on nil, a write for which no one has to wait.
type Write struct {
	ledger *Ledger
	kind   schema.GroupKind
	name   types.NamespacedName
	// places are where the object counts, by what was known before the request was sent. by are the places to use if
	// nothing else shows: the slots that caused the write.
	places []Place
	by     []Place
	// children are those of by where the objects of all owners are watched, so that caches say which do not exist.
	children []Place
	// uid is the UID of the object of that name in the stores, or "" if there was none.
	uid types.UID
	// author is the controller that sends it, or "" if no controller does.
	author string
	// awaited is true if reads wait for it. stored are the objects of the name in the stores then.
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
//   - If an informer of NewWholeInformer holds the kind, its objects also count in the slots in by that are of duties.
//   - Objects of a kind that is cached whole count in the slots by, and in their controlling owner's slot if the
//     owner's kind is primary.
//
// Write returns nil for a kind that is not declared and of which no informer runs: no cache of this
// member can be behind.
func (l *Ledger) Write(kind schema.GroupKind, name types.NamespacedName, body metav1.Object, by ...slot.Slot) *Write {
	w := &Write{ledger: l, kind: kind, name: name}
	r, keyUID := l.c.Roles.Role(kind), l.c.Roles.Key() == slot.KeyUID
	parts, caches := r.Parts(), l.c.Caches(kind)
	whole := slices.ContainsFunc(caches, func(c Cache) bool { return c.Runs && c.Whole })
	w.awaited = l.Reads != nil && (len(parts) > 0 || whole)
	if parts == nil && !slices.ContainsFunc(caches, func(c Cache) bool { return c.Runs }) {
		return nil
	}
	var known []metav1.Object
	if body != nil {
		known = append(known, body)
	}
	for _, c := range caches {
		about := c.Stored(name)
		if about == nil {
			continue
		}
		w.uid = about.GetUID()
		if !c.Whole {
			known = append(known, about)
		}
		if w.awaited {
			w.stored = append(w.stored, about)
		}
	}
	if name.Name != "" && r.Primary && !keyUID {
		known = append(known, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace,
			Name: name.Name}})
	}
	for _, about := range known {
		w.places = append(w.places, l.places(kind, r, about)...)
	}
	if r.Primary && keyUID && len(w.places) == 0 {
		if n, ok := l.Tombstones.Find(sharding.Subject{Kind: kind, Name: name}); ok {
			w.places = append(w.places, Place{Key: kind.String(), Slot: n})
		}
	}
	for _, n := range by {
		if len(parts) == 0 {
			w.by = append(w.by, Place{Key: kind.String(), Slot: n})
		}
		for _, part := range parts {
			p := Place{Key: Key(kind, r, part), Slot: n}
			w.by = append(w.by, p)
			if part.Owned() && !l.c.Roles.Scope(kind, part).Leaves() {
				w.children = append(w.children, p)
			}
		}
	}
	if len(parts) == 0 {
		w.places = append(w.places, w.by...)
	}
	for _, n := range by {
		if whole && int(n) >= int(l.c.Roles.SlotCount()) {
			w.places = append(w.places, Place{Key: WholeKey(kind), Slot: n})
		}
	}
	w.places = distinct(w.places)
	return w
}

// runsWhole reports whether an informer of NewWholeInformer of the kind runs.
func (l *Ledger) runsWhole(kind schema.GroupKind) bool {
	return slices.ContainsFunc(l.c.Caches(kind), func(c Cache) bool { return c.Runs && c.Whole })
}

// places returns where an object counts by its own content.
func (l *Ledger) places(kind schema.GroupKind, r sharding.Role, obj metav1.Object) []Place {
	var out []Place
	parts, key := r.Parts(), l.c.Roles.Key()
	for _, part := range parts {
		if part.Primary && (key == slot.KeyUID && obj.GetUID() == "" || key == slot.KeyName && obj.GetName() == "") {
			continue // a request to create the object does not have that yet
		}
		if n, _, ok := l.c.Roles.SlotBy(kind, part, obj); ok {
			out = append(out, Place{Key: Key(kind, r, part), Slot: n})
		}
	}
	if len(parts) > 0 {
		return out
	}
	if n, ok := l.ownerSlot(obj); ok {
		out = append(out, Place{Key: kind.String(), Slot: n})
	}
	return out
}

// ownerSlot returns the slot of the primary object that owns an object of an unsharded kind.
func (l *Ledger) ownerSlot(obj metav1.Object) (slot.Slot, bool) {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil {
		return 0, false
	}
	group, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return 0, false
	}
	owner := schema.GroupKind{Group: group.Group, Kind: ref.Kind}
	if !l.c.Roles.Sharded(owner) {
		return 0, false
	}
	namespace := obj.GetNamespace()
	for _, c := range l.c.Caches(owner) { // the owner may be without a namespace
		if c.Whole {
			continue
		}
		if about := c.Stored(types.NamespacedName{Name: ref.Name}); about != nil && about.GetUID() == ref.UID {
			namespace = ""
		}
	}
	return l.c.Roles.Slot(namespace, ref.Name, string(ref.UID)), true
}

// Slots returns the slots of sharded objects that the request is known to affect: the object's own slot, and the slots
// of its controlling owner before and after. It is empty while the name or the owner is not known.
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
		w.ledger.mu.Lock()
		defer w.ledger.mu.Unlock()
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
// left. A reconcile may write a child that lies elsewhere, such as one without an owner. The next owner of the
// reconcile's slot must know that it exists, too. ledger.mu is held.
func (w *Write) noteAnswer(obj metav1.Object) {
	places := append(w.ledger.places(w.kind, w.ledger.c.Roles.Role(w.kind), obj), w.places...)
	for _, p := range distinct(append(places, w.children...)) {
		w.ledger.record.Note(p, obj.GetResourceVersion())
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
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	for _, p := range w.places {
		w.ledger.record.Note(p, version)
	}
	w.noteOwn(&metav1.ObjectMeta{Namespace: w.name.Namespace, Name: w.name.Name}, version)
	w.await(nil, version)
}

// Missing notes that the API server has no object that a deletion named.
func (w *Write) Missing() {
	if w == nil {
		return
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.deleted()
}

// Deleted notes the API server's answer to a deletion. obj is the object that it answered with. If it answered with a
// Status, obj has only the UID of the object, or is nil if the Status does not have it.
func (w *Write) Deleted(obj metav1.Object) {
	if w == nil {
		return
	}
	if obj == nil {
		obj = &metav1.ObjectMeta{}
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
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
// Namespace has no grace period, and has finalizers in its spec: it may stay for long.
func ends(obj metav1.Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return grace != nil && *grace == 0
}

// remains reports whether a deleted object still exists because finalizers or a grace period keep it.
func remains(obj metav1.Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return obj.GetDeletionTimestamp() != nil && (len(obj.GetFinalizers()) > 0 || grace != nil && *grace > 0)
}

// deleted notes that the object does not exist any more. ledger.mu is held.
func (w *Write) deleted() {
	for _, p := range w.anywhere() {
		w.ledger.record.Deleted(p, w.name, w.uid)
	}
}

// Lost notes that the write's version is not known, nor whether the write was made: the answer was lost, could not be
// read, or does not show it. Call it when the request has been given up. The API server may still admit the request;
// the caller has to wait that out.
func (w *Write) Lost() {
	if w == nil {
		return
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	for _, p := range w.anywhere() {
		w.ledger.record.Lost(p)
	}
}

// anywhere returns the places where the object counts, or else those for which the write was made, as far as this
// member holds their slots. A writer on behalf of a duty has it.
func (w *Write) anywhere() []Place {
	places := w.places
	if len(places) == 0 {
		places = w.by
	}
	return slices.DeleteFunc(slices.Clone(places), func(p Place) bool {
		return !w.ledger.c.Holds(p.Slot) && int(p.Slot) < int(w.ledger.c.Roles.SlotCount())
	})
}

type unawaitedKey struct{}

// Unawaited returns a context for writes that no read is to wait for.
func Unawaited(ctx context.Context) context.Context {
	return context.WithValue(ctx, unawaitedKey{}, true)
}

// IsUnawaited reports whether ctx is of Unawaited.
func IsUnawaited(ctx context.Context) bool { return ctx.Value(unawaitedKey{}) != nil }

// Unawaited exempts the write from reads' waits.
func (w *Write) Unawaited() {
	if w != nil {
		w.awaited = false
	}
}

// Awaited reports whether reads wait for the write.
func (w *Write) Awaited() bool { return w != nil && w.awaited }

// await keeps a write for reads. obj is the object as it was written, or nil if only its version is known. ledger.mu is
// held.
func (w *Write) await(obj metav1.Object, version string) {
	if !w.awaited {
		return
	}
	p := w.pending(obj, w.places)
	p.Version = version
	if obj != nil {
		p.UID = obj.GetUID()
		p.Labels = []labels.Set{obj.GetLabels()}
	}
	if w.counts(p) && w.ledger.Reads.Note(p) {
		go w.ledger.c.Sweep(w.kind)
	}
}

// awaitGone keeps for reads that an object was deleted. answer has what the API server said of it. ledger.mu is held.
func (w *Write) awaitGone(answer metav1.Object) {
	if !w.awaited {
		return
	}
	places := w.places
	if len(places) == 0 && answer.GetName() == "" {
		places = w.by // as for anywhere: no cache has shown the object, and the answer does not show its owner
	}
	p := w.pending(answer, places)
	p.Gone, p.Version = answer.GetUID(), answer.GetResourceVersion()
	if p.Gone == "" {
		p.Gone = w.uid
	}
	for _, obj := range w.stored {
		if obj.GetUID() == p.Gone && resourceversion.Compare(p.Version, obj.GetResourceVersion()) < 0 {
			p.Version = obj.GetResourceVersion()
		}
	}
	if w.counts(p) && w.ledger.Reads.Delete(p) {
		go w.ledger.c.Sweep(w.kind)
	}
}

// pending returns the write of an object in its places.
func (w *Write) pending(obj metav1.Object, places []Place) Unshown {
	p := Unshown{Kind: w.kind, Name: w.name, Places: places}
	if obj != nil && obj.GetName() != "" {
		p.Name.Namespace, p.Name.Name = obj.GetNamespace(), obj.GetName()
		p.Places = distinct(append(w.ledger.places(w.kind, w.ledger.c.Roles.Role(w.kind), obj), places...))
	}
	return p
}

// counts reports whether an informer of this member may have to show the write. One that gains the object's slot later
// lists it after the write. The places of a child that no informer has shown yet come from an earlier write.
// ledger.mu is held.
func (w *Write) counts(p Unshown) bool {
	return p.Name.Name != "" && (w.ledger.runsWhole(w.kind) || w.ledger.Reads.Of(p.Kind, p.Name) != nil ||
		slices.ContainsFunc(p.Places, func(p Place) bool { return w.ledger.c.Holds(p.Slot) }))
}
