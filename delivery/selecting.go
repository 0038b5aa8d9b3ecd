package delivery

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Selectors are what a list or a watch of a sharded informer has to select by, whatever else it does.
type Selectors struct{ Label, Field string }

type selectorsKey struct{}

// SelectorsFrom returns the selectors of the request that a ListerWatcher is about to send with the context. One that
// overwrites those of the options, as that of controller-runtime's cache does where its user gave some, can be put
// right below it: see JoinSelectors.
func SelectorsFrom(ctx context.Context) Selectors {
	s, _ := ctx.Value(selectorsKey{}).(Selectors)
	return s
}

// WithSelectors returns a context of which SelectorsFrom returns the selectors.
func WithSelectors(ctx context.Context, s Selectors) context.Context {
	return context.WithValue(ctx, selectorsKey{}, s)
}

type kindKey struct{}

// KindFrom returns the kind of the informer whose ListerWatcher sends a request with the context; ok is false where no
// informer of a Share does.
func KindFrom(ctx context.Context) (kind schema.GroupKind, ok bool) {
	kind, ok = ctx.Value(kindKey{}).(schema.GroupKind)
	return kind, ok
}

// selecting has the contexts of requests carry their informer's kind and their selectors.
type selecting struct {
	cache.ListerWatcherWithContext
	kind schema.GroupKind
}

func (s selecting) with(ctx context.Context, o metav1.ListOptions) context.Context {
	ctx = context.WithValue(ctx, kindKey{}, s.kind)
	if o.LabelSelector == "" && o.FieldSelector == "" {
		return ctx
	}
	return WithSelectors(ctx, Selectors{Label: o.LabelSelector, Field: o.FieldSelector})
}

// ListWithContext implements cache.ListerWithContext.
func (s selecting) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return s.ListerWatcherWithContext.ListWithContext(s.with(ctx, o), o)
}

// WatchWithContext implements cache.WatcherWithContext.
func (s selecting) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return s.ListerWatcherWithContext.WatchWithContext(s.with(ctx, o), o)
}
