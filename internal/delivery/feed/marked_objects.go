package feed

import (
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/rota-dev/rota/slot"
)

// Marks are metadata.uids that no API server assigns. Every deletion is checked for one. Unlike annotations, the UID is
// cheap to read in every type of object.
const (
	markPrefix = "rota.dev%"
	// markBarrier marks a barrier: the store holds everything that was sent before. The barrier's number follows.
	markBarrier = markPrefix + "barrier-"
	// markLost marks an object that is no longer this member's. Handlers do not hear of it.
	markLost = markPrefix + "lost"
	// markMissing marks an object that a list did not show. It counts as a deletion, which Open or Options.Completed
	// reports. The slot's number follows: the slot may depend on the object's UID, which the mark replaces.
	markMissing = markPrefix + "missing-"
)

// barrierName cannot be an object's name: the API server refuses "%" in all of them.
const barrierName = "rota.dev%barrier-"

// marker makes marked objects of an informer's type.
type marker struct{ example runtime.Object }

// object returns a new marked object. The reflector accepts only objects of the type, and if unstructured of the GVK,
// that it has to expect.
func (m marker) object(uid types.UID, namespace, name, version string) runtime.Object {
	obj := reflect.New(reflect.TypeOf(m.example).Elem()).Interface().(runtime.Object)
	if gvk := m.example.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		obj.GetObjectKind().SetGroupVersionKind(gvk)
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		panic(err) // checked by NewInformer
	}
	accessor.SetUID(uid)
	accessor.SetNamespace(namespace)
	accessor.SetName(name)
	accessor.SetResourceVersion(version)
	return obj
}

func (m marker) barrier(serial uint64, version string) runtime.Object {
	n := strconv.FormatUint(serial, 10)
	return m.object(types.UID(markBarrier+n), "", barrierName+n, version)
}

// initialEnd is the event that ends a WatchList at a version.
func (m marker) initialEnd(version string) watch.Event {
	obj := m.object("", "", "", version)
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return watch.Event{Type: watch.Bookmark, Object: obj}
}

// markOf returns the object's mark, or "".
func markOf(obj any) string {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	uid := string(accessor.GetUID())
	if !strings.HasPrefix(uid, markPrefix) {
		return ""
	}
	return uid
}

// linkTransformed is the selfLink of an object that has been transformed on its way to the store. API servers set no
// selfLinks.
const linkTransformed = markPrefix + "transformed"

func markTransformed(obj any) {
	if about, err := meta.Accessor(obj); err == nil {
		about.SetSelfLink(linkTransformed)
	}
}

// unmarkTransformed reports whether an object has been transformed, and removes the mark.
func unmarkTransformed(obj any) bool {
	about, err := meta.Accessor(obj)
	if err != nil || about.GetSelfLink() != linkTransformed {
		return false
	}
	about.SetSelfLink("")
	return true
}

// barrierOf returns the number of a barrier.
func barrierOf(mark string) (serial uint64, ok bool) {
	n, ok := strings.CutPrefix(mark, markBarrier)
	if !ok {
		return 0, false
	}
	serial, err := strconv.ParseUint(n, 10, 64)
	return serial, err == nil
}

// missingOf returns the slot in which a list did not find an object.
func missingOf(mark string) (slot.Slot, bool) {
	text, ok := strings.CutPrefix(mark, markMissing)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return slot.Slot(n), err == nil
}
