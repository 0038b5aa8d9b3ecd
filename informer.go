package rota

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/engine"
)

// Lister is what a clientset has for each kind, such as client.CoreV1().Secrets(metav1.NamespaceAll). L is the list
// type.
type Lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// InformerFactory is a SharedInformerFactory: that of client-go, or one that client-gen made for other kinds. N is its
// package's type NewInformerFunc; like all type parameters here it is inferred.
type InformerFactory[N any] interface {
	InformerFor(example runtime.Object, newFunc N) cache.SharedIndexInformer
}

// Children makes ShareInformer deliver a kind by the keys of its objects' controlling owners, which are of the kind Of,
// so that parent and child are in the same member.
type Children struct {
	// Of is the kind of the owners, with its group. A queue must be about it, or Shard must have been called for it; with
	// slot.KeyNamespace it is enough that it is sharded. Else Run ends with an error.
	Of schema.GroupKind
	// ClusterScoped says that the owners are not namespaced.
	ClusterScoped bool
	// WithoutOrphans leaves out objects without a controlling owner. By default every member gets these objects, since its
	// reconciles may adopt them. No label selects them. So with DeliverySlotLabel and DeliveryShardSelector the API
	// server sends all objects of the kind, and the member keeps its share and the orphans. If any Children of a kind want
	// orphans, all get them.
	WithoutOrphans bool
}

// ShareInformer makes the factory's informer of a kind hold this member's share, and returns it. Listers and informers
// that the factory gives out later use it. Call it before the factory is asked for the kind. example is an empty object
// of the kind. The kind is sharded by its objects' own keys from then on, or with Children by those of their
// controlling owners, which may be of several kinds. The informer must run before the member joins.
//
// The factory's resync period and transform apply to it. Its namespace and its changes of list options do not: client
// decides what is listed. If a client that client-gen made would list more than the factory, that is an error: pass the
// client of the factory's namespace, or a Lister of your own that changes the options. client must come from a config
// of WrapConfig, as the factory's client should. Run ends with an error if the informer's lists or watches do not go
// through such a client.
//
// Run also ends with an error if the informer has handlers, and no queue that gets the objects of slots that come: one
// of the kind, or of each of the owners' kinds with Children, or of any kind with slot.KeyNamespace. See Shard for an
// exception.
//
// Without such a factory, use Rota.NewInformer with any cache.ListerWatcher.
func ShareInformer[L runtime.Object, N ~func(C, time.Duration) cache.SharedIndexInformer, C any](
	r *Rota, factory InformerFactory[N], kind schema.GroupVersionKind, example runtime.Object, client Lister[L],
	children ...Children,
) (cache.SharedIndexInformer, error) {
	return engine.ShareInformer[L, N, C](r.engine, factory, kind, example, client, ownersOf(children)...)
}

// NewInformer makes an informer of any cache.ListerWatcher, as cache.NewSharedIndexInformer does. What it holds is
// decided when it starts: this member's share if NewQueue was called with it or Shard for its kind, else all objects.
// In both cases the next owner of a slot waits for it (rule R8). With Children it holds the share by owners, even if
// the kind is also sharded by its own keys; call Shard with the same Children.
//
// example must be a pointer to a struct with metadata. A log line says so if the informer's requests do not go through
// a client of a config of WrapConfig.
func (r *Rota) NewInformer(kind schema.GroupKind, lw cache.ListerWatcher, example runtime.Object, resync time.Duration,
	indexers cache.Indexers, children ...Children,
) cache.SharedIndexInformer {
	return r.engine.NewInformer(kind, lw, example, resync, indexers, ownersOf(children)...)
}

// Shard makes the informers of a kind hold this member's share: by the objects' own keys, or with Children by those of
// their controlling owners. Call it before Run and before an informer of the kind runs. ShareInformer calls it, and
// NewQueue does for the kind of its informer.
//
// Called beside ShareInformer, it says that the informer's handlers work without a queue of the kind. That is right if
// they only observe, as for metrics or an index. It is also right if its objects have the names of objects of a kind
// with a queue, and their handlers enqueue these: such pairs are in the same slot.
func (r *Rota) Shard(kind schema.GroupKind, children ...Children) error {
	return r.engine.Shard(kind, ownersOf(children)...)
}

func ownersOf(children []Children) []engine.Children {
	out := make([]engine.Children, len(children))
	for i, c := range children {
		out[i] = engine.Children(c)
	}
	return out
}
