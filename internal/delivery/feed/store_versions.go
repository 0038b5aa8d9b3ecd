package feed

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
)

// storeVersions tracks the version of a whole kind's store if the store does not: with client-go before 0.36.
// It looks at what goes into the informer and at what the informer's handlers hear. The truth is in between:
//
//	shown <= version of the store <= came
//
// An informer applies the events of a watch in their order. It does not apply a list in the order of versions, so
// handlers are believed only about what is newer than the latest list.
type storeVersions struct {
	// synced reports whether the store shows the first list.
	synced func() bool

	mu     sync.Mutex
	came   string
	shown  string
	listed string // the version of the latest list; table.List: initial events are on their way, which are one
	lists  int
}

// list notes a page of a list.
func (v *storeVersions) list(page runtime.Object, first bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.began(versionOfList(page), first)
}

// began notes a list. v.mu is held.
func (v *storeVersions) began(version string, first bool) {
	if first {
		v.lists++
	}
	v.listed = version
	v.raise(&v.came, version)
}

// event notes what a watch brought, before the informer gets it.
func (v *storeVersions) event(e watch.Event) {
	about, err := meta.Accessor(e.Object)
	if err != nil || e.Type == watch.Error {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if e.Type == watch.Bookmark && about.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
		v.began(about.GetResourceVersion(), true)
	}
	v.raise(&v.came, about.GetResourceVersion())
}

func (v *storeVersions) raise(what *string, version string) {
	if resourceversion.Compare(*what, version) < 0 {
		*what = version
	}
}

// follow returns a watch that notes what it brings. initial: it begins with the state instead of a list.
func (v *storeVersions) follow(upstream watch.Interface, initial bool) watch.Interface {
	if initial {
		v.mu.Lock()
		v.listed = table.List
		v.mu.Unlock()
	}
	w := &notedWatch{upstream: upstream, out: make(chan watch.Event), stopped: make(chan struct{})}
	go func() {
		defer close(w.out)
		for e := range upstream.ResultChan() {
			v.event(e)
			select {
			case w.out <- e:
			case <-w.stopped:
				return
			}
		}
	}()
	return w
}

type notedWatch struct {
	upstream watch.Interface
	out      chan watch.Event
	once     sync.Once
	stopped  chan struct{}
}

func (w *notedWatch) ResultChan() <-chan watch.Event { return w.out }

func (w *notedWatch) Stop() {
	w.once.Do(func() { close(w.stopped) })
	w.upstream.Stop()
}

// heard notes what a handler heard, which the store shows by then.
func (v *storeVersions) heard(obj any) {
	about, err := meta.Accessor(obj)
	if err != nil {
		return // of a deletion that a list showed
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if version := about.GetResourceVersion(); resourceversion.Compare(version, v.listed) > 0 {
		v.raise(&v.shown, version)
	}
}

// OnAdd implements cache.ResourceEventHandler.
func (v *storeVersions) OnAdd(obj any, _ bool) { v.heard(obj) }

// OnUpdate implements cache.ResourceEventHandler.
func (v *storeVersions) OnUpdate(_, obj any) { v.heard(obj) }

// OnDelete implements cache.ResourceEventHandler.
func (v *storeVersions) OnDelete(obj any) { v.heard(obj) }

// atLeast returns a version up to which the store shows the kind, or "" if it is not known.
func (v *storeVersions) atLeast() string {
	synced := v.synced()
	v.mu.Lock()
	defer v.mu.Unlock()
	if synced && v.lists == 1 && v.listed != table.List {
		v.raise(&v.shown, v.listed)
	}
	return v.shown
}

// atMost returns a version beyond which the store shows nothing.
func (v *storeVersions) atMost() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.came
}
