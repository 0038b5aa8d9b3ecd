package feed

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
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
