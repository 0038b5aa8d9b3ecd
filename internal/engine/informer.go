package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/upstream/clientgo"
)

// Lister implements rota.Lister.
type Lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// InformerFactory implements rota.InformerFactory.
type InformerFactory[N any] interface {
	InformerFor(example runtime.Object, newFunc N) cache.SharedIndexInformer
}

// Children implements rota.Children.
type Children struct {
	Of             schema.GroupKind
	ClusterScoped  bool
	WithoutOrphans bool
}

// ShareInformer implements rota.ShareInformer.
func ShareInformer[L runtime.Object, N ~func(C, time.Duration) cache.SharedIndexInformer, C any](
	r *Engine, factory InformerFactory[N], kind schema.GroupVersionKind, example runtime.Object, client Lister[L],
	children ...Children,
) (cache.SharedIndexInformer, error) {
	if err := checkFactory(factory, client); err != nil {
		return nil, fmt.Errorf("informer of %s: %w", kind.GroupKind(), err)
	}
	var made cache.SharedIndexInformer
	given := factory.InformerFor(example, func(_ C, resync time.Duration) cache.SharedIndexInformer {
		lw := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return client.List(ctx, o)
			},
			WatchFuncWithContext: client.Watch,
		}
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		made = r.NewInformer(kind.GroupKind(), lw, example, resync, indexers, children...)
		return made
	})
	if made == nil {
		return given, fmt.Errorf("informer of %s: its factory has made one already: call ShareInformer before the factory "+
			"is asked for the kind; a second one, such as one of the same objects by their owners, needs a separate factory",
			kind.GroupKind())
	}
	if err := r.declare("ShareInformer", kind.GroupKind(), children); err != nil {
		return nil, err
	}
	_, started, _ := r.share.KindOf(made)
	r.setup.needs(start{
		kind: kind.GroupKind(), started: started, client: true, owned: len(children) > 0, informer: made,
	})
	return made, nil
}

// NewInformer implements rota.Rota.NewInformer.
func (r *Engine) NewInformer(kind schema.GroupKind, lw cache.ListerWatcher, example runtime.Object,
	resync time.Duration, indexers cache.Indexers, children ...Children,
) cache.SharedIndexInformer {
	if len(children) > 0 {
		return r.share.NewOwnedInformer(kind, lw, example, resync, indexers)
	}
	return r.share.NewInformer(kind, lw, example, resync, indexers)
}

// Shard implements rota.Rota.Shard.
func (r *Engine) Shard(kind schema.GroupKind, children ...Children) error {
	if err := r.declare("Shard", kind, children); err != nil {
		return err
	}
	r.declared.Store(kind, true)
	return nil
}

// checkLate returns an error if it is too late to shard another kind. A kind that comes while the member works is
// listed for the slots that the member has by then, and its controller's workers start when that list is complete. But
// labels are written by duties, which are declared when the member joins.
func (r *Engine) checkLate() error {
	if !r.setup.late() || r.share.Delivery() == sharding.Filter && !r.opts.Label {
		return nil
	}
	return fmt.Errorf("Run was called before, and with delivery %s or Options.Label a kind cannot be sharded after that",
		r.share.Delivery())
}

// declare sets how a kind is sharded. call is the name of the user's call, for error messages.
func (r *Engine) declare(call string, kind schema.GroupKind, children []Children) error {
	if err := r.checkLate(); err != nil {
		return fmt.Errorf("informer of %s: %w: call %s before", kind, err, call)
	}
	if len(children) == 0 {
		return r.share.Shard(kind)
	}
	for _, c := range children {
		if c.Of.Kind == "" {
			return fmt.Errorf("informer of %s: Children.Of is empty: set the kind of the owners", kind)
		}
		if !r.share.Own(kind, c.Of, !c.ClusterScoped) {
			return fmt.Errorf("informer of %s: one runs already: call %s before any informer of the kind runs", kind, call)
		}
		if c.WithoutOrphans {
			continue
		}
		if err := r.share.AddOrphans(kind); err != nil {
			return fmt.Errorf("%w; or set WithoutOrphans of rota.Children", err)
		}
	}
	return nil
}

// checkFactory returns an error if a factory made by client-gen restricts what its informers list, by WithNamespace or
// WithTweakListOptions, and the client is a generated one that does not. Clients that were not generated are trusted to
// list the right objects.
func checkFactory(factory, client any) error {
	of, generated := clientgo.ClientNamespace(client)
	if !generated {
		return nil
	}
	namespace, tweaked := clientgo.FactoryOptions(factory)
	if tweaked {
		return errors.New("its factory was made with WithTweakListOptions, which does not apply here, so that it would " +
			"list more: pass as client a value of your own whose List and Watch change the options and call the client's, or " +
			"take a factory without this option")
	}
	if namespace != "" && namespace != of {
		listed := fmt.Sprintf("lists namespace %s", of)
		if of == "" {
			listed = "lists all namespaces"
		}
		return fmt.Errorf("its factory was made with WithNamespace(%q), and the client %s: pass the client of that "+
			"namespace, or take a factory without this option", namespace, listed)
	}
	return nil
}
