package feed

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/internal/upstream/clientgo"
)

// comparePeriod is the time between two looks whether a store shows a list.
const comparePeriod = 20 * time.Millisecond

// WholeStore is what an informer that is not sharded does beside what a stock informer does: it lists consistently, and
// shows how new its store is.
type WholeStore struct {
	inf    *Informer
	failed atomic.Pointer[error] // why the last list or watch failed
	// versions tracks the version of the store, or is nil if the store does so. It stays while the informer runs.
	versions *storeVersions
	// At the version compared, a list showed nothing that the store did not. comparing guards it.
	compared  string
	comparing chan struct{}
}

// list answers the reflector. The reflector takes any version at first. But the informer may start after this member,
// or the slot's former owner, has written what it is to show. So it gets one answer, as of now: pages of a first list
// would make the reflector ask for pages of all later ones.
func (w *WholeStore) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion, o.Limit = "", 0
	}
	list, err := w.inf.Source.upstream.list(ctx, sharding.Request{ListOptions: o})
	w.failed.Store(&err)
	if err == nil && w.versions != nil {
		w.versions.list(list, o.Continue == "")
	}
	return list, err
}

func (w *WholeStore) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	upstream, err := w.inf.Source.upstream.watch(ctx, sharding.Request{ListOptions: o})
	if err != nil {
		w.failed.Store(&err)
		return nil, err
	}
	if w.versions != nil {
		upstream = w.versions.follow(upstream, sendsInitial(o))
	}
	return upstream, nil
}

// Reach returns nil once the store of a whole kind shows what a list showed that is as new as the version. It
// returns an error if ctx ends or the list fails.
func (w *WholeStore) Reach(ctx context.Context, version string) error {
	select {
	case w.comparing <- struct{}{}: // one at a time: the others need no separate list
		defer func() { <-w.comparing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if resourceversion.Compare(w.compared, version) >= 0 {
		return nil
	}
	listed, at, err := w.listVersions(ctx)
	if err != nil {
		return fmt.Errorf("list of %s: %w", w.inf.Kind, err)
	}
	tick := time.NewTicker(comparePeriod)
	defer tick.Stop()
	for !w.matches(listed, at) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	w.compared = at
	return nil
}

// matches reports whether the store is as new as a list at a version.
func (w *WholeStore) matches(listed map[string]string, at string) bool {
	if resourceversion.Compare(w.ShownVersion(), at) >= 0 {
		return true
	}
	for key, version := range listed {
		obj, there, err := w.inf.GetStore().GetByKey(key)
		if err != nil || !there || resourceversion.Compare(VersionOf(obj), version) < 0 {
			return false
		}
	}
	for _, obj := range w.inf.GetStore().List() { // what the list does not show was deleted before it or created after it
		key, err := cache.MetaNamespaceKeyFunc(obj)
		if err != nil {
			return false
		}
		if _, there := listed[key]; !there && resourceversion.Compare(VersionOf(obj), at) <= 0 {
			return false
		}
	}
	return true
}

// noteVersions has the informer of a whole kind note its store's version if the store does not.
func (w *WholeStore) noteVersions() error {
	if _, ok := clientgo.StoreVersion(w.inf.GetStore()); ok || w.inf.Sharded {
		return nil
	}
	return w.followVersions()
}

func (w *WholeStore) followVersions() error {
	w.versions = &storeVersions{synced: w.inf.HasSynced}
	// No resync: it shows nothing new.
	_, err := w.inf.SharedIndexInformer.AddEventHandlerWithResyncPeriod(w.versions, 0)
	return err
}

// ShownVersion returns a version up to which the store of a whole kind shows it, or "" if it is not known.
func (w *WholeStore) ShownVersion() string {
	if version, ok := clientgo.StoreVersion(w.inf.GetStore()); ok {
		return version
	}
	if w.versions == nil {
		return "" // it does not run yet
	}
	return w.versions.atLeast()
}

// atMost returns a version beyond which the store shows nothing.
func (w *WholeStore) atMost() string {
	if version, ok := clientgo.StoreVersion(w.inf.GetStore()); ok {
		return version
	}
	if w.versions == nil {
		return ""
	}
	return w.versions.atMost()
}

// listVersions returns the versions of the objects that the informer selects, and the list's, as of now.
func (w *WholeStore) listVersions(ctx context.Context) (listed map[string]string, at string, err error) {
	listed = map[string]string{}
	at, err = w.inf.Source.eachListed(ctx, 0, func(obj runtime.Object) error {
		key, err := cache.MetaNamespaceKeyFunc(obj)
		listed[key] = VersionOf(obj)
		return err
	})
	return listed, at, err
}

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
