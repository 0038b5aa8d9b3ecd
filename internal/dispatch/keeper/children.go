package keeper

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/dispatch/feed"
	"github.com/rota-dev/rota/internal/dispatch/queue"
)

// followChildren hands out the keys of a kind's objects when their children change. A source is one kind of children in
// one namespace. If events were missed, all objects of the kind are handed out.
func (d *Dispatcher) followChildren(kind schema.GroupKind, source cache.ListerWatcherWithContext,
	mapper meta.RESTMapper,
) {
	f := feed.New(feed.Options{
		Name: "children of " + kind.String(), Source: source,
		Event: func(obj metav1.Object, _ bool) {
			if key, uid, ok := ownerOf(kind, obj, mapper); ok {
				d.related(key, uid)
				d.step()
			}
		},
		Missed: func() { d.listAgain(kind.String()) },
		Logger: d.o.Logger,
	})
	d.feeds = append(d.feeds, f)
	d.children[kind.String()] = append(d.children[kind.String()], f)
	d.ofChildren[f] = true
}

// ownerOf returns the key of the object of a kind that controls obj.
func ownerOf(kind schema.GroupKind, obj metav1.Object, mapper meta.RESTMapper) (key queue.Key, uid string, ok bool) {
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil || owner.Kind != kind.Kind {
		return key, "", false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil || version.Group != kind.Group {
		return key, "", false
	}
	key = queue.Key{Kind: kind.String(), Namespace: obj.GetNamespace(), Name: owner.Name}
	// An owner is in the namespace of its child, or is cluster-scoped.
	if m, err := mapper.RESTMapping(kind); err == nil && m.Scope.Name() == meta.RESTScopeNameRoot {
		key.Namespace = ""
	}
	return key, string(owner.UID), true
}

// related records in the queue that something related to an object has changed.
func (d *Dispatcher) related(key queue.Key, uid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.change(queue.Change{
		Key: key, Slot: d.parts.Slots.Of(d.parts.Key.Hash(key.Namespace, key.Name, uid)), UID: uid,
		Class: queue.Changed, Related: true,
	})
}
