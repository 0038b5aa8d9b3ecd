package delivery_test

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// informerEvent is what a handler heard.
type informerEvent struct {
	what     string
	old, obj *corev1.ConfigMap
	initial  bool // isInInitialList
	unknown  bool // the last state of what was deleted is not known
}

func (e informerEvent) name() types.NamespacedName {
	return types.NamespacedName{Namespace: e.obj.Namespace, Name: e.obj.Name}
}

// repeats reports whether the event is one of a resync, or of a list that shows what is known.
func (e informerEvent) repeats() bool {
	return e.what == "update" && e.old.ResourceVersion == e.obj.ResourceVersion
}

func (e informerEvent) String() string {
	text := e.what + " " + shown(e.obj)
	if e.old != nil {
		text += ", before " + shown(e.old)
	}
	if e.initial {
		text += ", in the initial list"
	}
	if e.unknown {
		text += ", last state unknown"
	}
	return text
}

// shown is an object in short, but for the labels by which it is delivered.
func shown(obj *corev1.ConfigMap) string {
	owner := ""
	if ref := metav1.GetControllerOf(obj); ref != nil {
		owner = " of " + ref.Kind + " " + ref.Name
	}
	return fmt.Sprintf("%s/%s@%s%s%v", obj.Namespace, obj.Name, obj.ResourceVersion, owner, obj.Annotations)
}

// hearer is an event handler that notes what it hears.
type hearer struct {
	mu     sync.Mutex
	events []informerEvent
}

func (h *hearer) note(e informerEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

func (h *hearer) take() []informerEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := h.events
	h.events = nil
	return events
}

func (h *hearer) OnAdd(obj any, initial bool) {
	h.note(informerEvent{what: "add", obj: obj.(*corev1.ConfigMap), initial: initial})
}

func (h *hearer) OnUpdate(old, obj any) {
	h.note(informerEvent{what: "update", old: old.(*corev1.ConfigMap), obj: obj.(*corev1.ConfigMap)})
}

func (h *hearer) OnDelete(obj any) {
	gone, unknown := obj.(cache.DeletedFinalStateUnknown)
	if unknown {
		obj = gone.Obj
	}
	h.note(informerEvent{what: "delete", obj: obj.(*corev1.ConfigMap), unknown: unknown})
}
