package rota

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Lister is what a clientset has for each kind, such as client.CoreV1().Secrets(metav1.NamespaceAll). L is the list.
type Lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// InformerFactory is a SharedInformerFactory: that of client-go, or one that client-gen made for other kinds. N is its
// package's type NewInformerFunc; like all type parameters here it is inferred.
type InformerFactory[N any] interface {
	InformerFor(example runtime.Object, newFunc N) cache.SharedIndexInformer
}

// ShareInformer makes the factory's informer of a kind one that holds this member's share, and returns it. Listers and
// informers that the factory gives out later are that one. It must be called before the factory is asked for the kind;
// example is an empty object of it.
//
// The factory's resync period and transform hold for it. Its namespace and tweaks of list options do not: client says
// what is listed.
//
// Where there is no such factory, Share().NewInformer does the same for any cache.ListerWatcher.
func ShareInformer[L runtime.Object, N ~func(C, time.Duration) cache.SharedIndexInformer, C any](
	r *Rota, factory InformerFactory[N], kind schema.GroupVersionKind, example runtime.Object, client Lister[L],
) (cache.SharedIndexInformer, error) {
	var made cache.SharedIndexInformer
	given := factory.InformerFor(example, func(_ C, resync time.Duration) cache.SharedIndexInformer {
		lw := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return client.List(ctx, o)
			},
			WatchFuncWithContext: client.Watch,
		}
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		made = r.share.NewInformer(kind.GroupKind(), lw, example, resync, indexers)
		return made
	})
	if made == nil {
		return given, fmt.Errorf("informer of %s: the factory has made one of all objects already: call ShareInformer first", kind.GroupKind())
	}
	return made, nil
}
