package feed

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

var configMapKind = schema.GroupKind{Kind: "ConfigMap"}

func TestMarkedObjectsPassForTheRealOnes(t *testing.T) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Website"})
	for _, example := range []runtime.Object{&corev1.ConfigMap{}, u,
		&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}} {
		obj := marker{example}.barrier(7, "12")
		if fmt.Sprintf("%T", obj) != fmt.Sprintf("%T", example) {
			t.Errorf("%T, want %T", obj, example)
		}
		if got, want := obj.GetObjectKind().GroupVersionKind(), example.GetObjectKind().GroupVersionKind(); got != want {
			t.Errorf("%T: %v, want %v", example, got, want)
		}
		if serial, ok := barrierOf(markOf(obj)); !ok || serial != 7 || VersionOf(obj) != "12" {
			t.Errorf("%T: %v", example, obj)
		}
	}
	if mark := markOf(configMap("a", "b", "uid")); mark != "" {
		t.Errorf("mark %q", mark)
	}
}

// noResync is deliverytest.Never.
const noResync = 100_000 * time.Hour

func configMap(namespace, name, uid string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid),
		ResourceVersion: "1"}}
}

// With key UID a namesake lies in another slot.
func TestKeyUIDUpdateToANamesake(t *testing.T) {
	s := newCommon(sharding.Options{Slots: 8, Key: slot.KeyUID})
	inf := NewInformer(s, configMapKind, &cache.ListWatch{}, &corev1.ConfigMap{}, 0, nil)
	inf.Source.on.Store(true)
	var heard []string
	h := &handler{informer: inf, user: cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { heard = append(heard, "add") },
		UpdateFunc: func(any, any) { heard = append(heard, "update") },
		DeleteFunc: func(any) { heard = append(heard, "delete") },
	}}
	a := configMap("ns", "x", "uid-a")
	b := a
	for i := 0; s.Slot("", "", string(b.UID)) == s.Slot("", "", string(a.UID)); i++ {
		b = configMap("ns", "x", "uid-"+strconv.Itoa(i))
	}
	var ours slot.Set
	ours.Add(s.Slot("", "", string(a.UID)))
	s.hold(ours)
	s.Unmute(ours)
	h.OnUpdate(a, a)
	h.OnUpdate(a, b)
	h.OnUpdate(b, b)
	h.OnUpdate(b, a)
	if got := fmt.Sprint(heard); got != "[update delete add]" {
		t.Errorf("heard %s", got)
	}
}

// After a restore of etcd a position may lie in the future for ever.
func TestTooLargeVersionEndsInAList(t *testing.T) {
	s := newCommon(sharding.Options{})
	inf := NewInformer(s, configMapKind, &cache.ListWatch{}, &corev1.ConfigMap{}, 0, nil)
	p := newPump(t.Context(), inf.Source, metav1.ListOptions{})
	defer p.Stop()
	status := &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}},
	}
	for range tooLargeMax - 1 {
		if !p.received(watch.Event{Type: watch.Error, Object: status}, true) {
			t.Fatal("gave up early")
		}
	}
	last := make(chan watch.Event, 1)
	go func() { last <- <-p.ResultChan() }()
	if p.received(watch.Event{Type: watch.Error, Object: status}, true) {
		t.Fatal("never gives up")
	}
	if got := (<-last).Object.(*metav1.Status); got.Code != http.StatusGone || got.Reason != metav1.StatusReasonExpired {
		t.Errorf("the reflector got %+v", got)
	}
}

// The memory of a list must go with the objects that are not kept.
func TestKeepCopiesWhatStays(t *testing.T) {
	s := newCommon(sharding.Options{Slots: 8})
	inf := NewInformer(s, configMapKind, &cache.ListWatch{}, &corev1.ConfigMap{}, 0, nil)
	list := &corev1.ConfigMapList{}
	want := 0
	for i := range 100 {
		list.Items = append(list.Items, *configMap("ns", strconv.Itoa(i), ""))
		if s.Slot("ns", strconv.Itoa(i), "") == 3 {
			want++
		}
	}
	before := &list.Items[0]
	var ours slot.Set
	ours.Add(3)
	if _, err := inf.Source.keep(list, &relist{List: inf.Source.core.NewList(ours)}, sharding.Everything); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != want || cap(list.Items) > 2*want+8 || &list.Items[0] == before {
		t.Errorf("kept %d (cap %d), want %d in a slice of their own", len(list.Items), cap(list.Items), want)
	}
}

// BenchmarkForeignEvent is what an event of another member's object costs a handler's wrapper.
func BenchmarkForeignEvent(b *testing.B) {
	s := newCommon(sharding.Options{})
	inf := NewInformer(s, configMapKind, &cache.ListWatch{}, &corev1.ConfigMap{}, 0, nil)
	inf.Source.on.Store(true)
	h := &handler{informer: inf, user: cache.ResourceEventHandlerFuncs{}}
	obj := configMap("some-namespace", "some-object-7f9c6d5b4", "")
	b.ReportAllocs()
	for b.Loop() {
		h.OnUpdate(obj, obj)
	}
}
