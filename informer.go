package rota

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
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
			"is asked for the kind; a second one, of the same objects by their owners for instance, needs a factory of its own",
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
	if len(children) > 0 {
		return r.share.NewOwnedInformer(kind, lw, example, resync, indexers)
	}
	return r.share.NewInformer(kind, lw, example, resync, indexers)
}

// Shard makes the informers of a kind hold this member's share: by the objects' own keys, or with Children by those of
// their controlling owners. Call it before Run and before an informer of the kind runs. ShareInformer calls it, and
// NewQueue does for the kind of its informer.
//
// Called beside ShareInformer, it says that the informer's handlers work without a queue of the kind. That is right if
// they only observe, as for metrics or an index. It is also right if its objects have the names of objects of a kind
// with a queue, and their handlers enqueue these: such pairs are in the same slot.
func (r *Rota) Shard(kind schema.GroupKind, children ...Children) error {
	if err := r.declare("Shard", kind, children); err != nil {
		return err
	}
	r.declared.Store(kind, true)
	return nil
}

// declare sets how a kind is sharded. call is the name of the user's call, for errors.
func (r *Rota) declare(call string, kind schema.GroupKind, children []Children) error {
	if r.setup.late() {
		return fmt.Errorf("informer of %s: Run was called before: call %s first", kind, call)
	}
	if len(children) == 0 {
		return r.share.Shard(kind)
	}
	for _, c := range children {
		if c.Of.Kind == "" {
			return fmt.Errorf("informer of %s: Children.Of is empty: say of which kind the owners are", kind)
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

// checkFactory returns an error if a factory that client-gen made narrows what its informers list, by WithNamespace or
// WithTweakListOptions, and the client is a generated one that does not. A factory tells nobody of its options, so they
// are read from its fields. Clients of another make are trusted to list what they should.
func checkFactory(factory, client any) error {
	of, generated := namespaceOf(client)
	fields := reflect.Indirect(reflect.ValueOf(factory))
	if !generated || fields.Kind() != reflect.Struct {
		return nil
	}
	if f := fields.FieldByName("tweakListOptions"); f.IsValid() && f.Kind() == reflect.Func && !f.IsNil() {
		return errors.New("its factory was made with WithTweakListOptions, which does not apply here, so that it would " +
			"list more: pass as client a value of your own whose List and Watch change the options and call the client's, or " +
			"take a factory without this option")
	}
	f := fields.FieldByName("namespace")
	if f.IsValid() && f.Kind() == reflect.String && f.String() != "" && f.String() != of {
		listed := fmt.Sprintf("lists namespace %s", of)
		if of == "" {
			listed = "lists all namespaces"
		}
		return fmt.Errorf("its factory was made with WithNamespace(%q), and the client %s: pass the client of that "+
			"namespace, or take a factory without this option", f.String(), listed)
	}
	return nil
}

// namespaceOf returns the namespace of a client that client-gen made; ok is false for others.
func namespaceOf(client any) (namespace string, ok bool) {
	switch c := client.(type) {
	case interface{ GetNamespace() string }:
		return c.GetNamespace(), true
	case interface{ Namespace() string }: // a fake
		return c.Namespace(), true
	}
	return "", false
}
