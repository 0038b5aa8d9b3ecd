package feed

import (
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

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

// never is the number of a barrier that does not come: handlers believe nothing before it; see barriers.arrived.
const never = math.MaxUint64

// barriers are the barriers on their way through an informer.
type barriers struct {
	// joining is held while a barrier travels and while a handler is added. So a handler that is added after barrier n has
	// seen n, and will see all later ones. marks is the number of the last barrier sent.
	joining sync.Mutex
	marks   atomic.Uint64
	// arrived[s] is the barrier before which notifications about slot s may be false: if a Replace races with the loss of
	// the slot, it reports to handlers that the slot's objects were deleted. It is 0 if there is no such barrier.
	arrived []atomic.Uint64

	mu      sync.Mutex
	waiting map[uint64]chan struct{}
}

// barrier is a mark that was sent to the store.
type barrier struct {
	serial  uint64
	arrived chan struct{}
	sent    bool
}

// raise sends a barrier. await has to follow.
func (s *barriers) raise(fresh slot.Set, send func(serial uint64) bool) barrier {
	s.joining.Lock()
	b := barrier{serial: s.marks.Add(1), arrived: make(chan struct{})}
	for _, n := range fresh.Slots() {
		s.arrived[n].Store(b.serial)
	}
	s.mu.Lock()
	s.waiting[b.serial] = b.arrived
	s.mu.Unlock()
	b.sent = send(b.serial)
	return b
}

// await waits until a barrier has arrived. It returns false if it does not.
func (s *barriers) await(b barrier, done <-chan struct{}) bool {
	defer s.joining.Unlock()
	if b.sent {
		// User code cannot block this: listeners have unbounded queues.
		select {
		case <-b.arrived:
			return true
		case <-done:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, b.serial)
	return false
}

// arrives ends the wait for a barrier.
func (s *barriers) arrives(serial uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if arrived, ok := s.waiting[serial]; ok {
		close(arrived)
		delete(s.waiting, serial)
	}
}

// join has a handler that sees all barriers after the last one be added.
func (s *barriers) join(add func(last uint64) error) error {
	s.joining.Lock()
	defer s.joining.Unlock()
	return add(s.marks.Load())
}
