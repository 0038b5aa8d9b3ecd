package delivery

import (
	"context"
	"errors"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Selectors are what a list or a watch of a sharded informer must select by.
type Selectors struct{ Label, Field string }

type selectorsKey struct{}

// SelectorsFrom returns the selectors of the request that a ListerWatcher is about to send with the context. Some
// ListerWatchers overwrite the selectors of the options, as that of controller-runtime's cache does for selectors that
// its user gave. Code below such a one can restore them; see JoinSelectors.
func SelectorsFrom(ctx context.Context) Selectors {
	s, _ := ctx.Value(selectorsKey{}).(Selectors)
	return s
}

// WithSelectors returns a context whose selectors SelectorsFrom returns.
func WithSelectors(ctx context.Context, s Selectors) context.Context {
	return context.WithValue(ctx, selectorsKey{}, s)
}

type passageKey struct{}

// passage is a request of an informer in flight.
type passage struct {
	kind schema.GroupKind
	seen atomic.Bool // a transport asked for the kind
}

// KindFrom returns the kind of the informer whose ListerWatcher sends a request with the context; ok is false if no
// informer of a Share does. It is for transports: Options.Unseen reports requests that no transport has asked about.
func KindFrom(ctx context.Context) (kind schema.GroupKind, ok bool) {
	p, ok := ctx.Value(passageKey{}).(*passage)
	if !ok {
		return schema.GroupKind{}, false
	}
	p.seen.Store(true)
	return p.kind, true
}

// selecting adds the informer's kind and the selectors to the contexts of its requests.
type selecting struct {
	cache.ListerWatcherWithContext
	kind   schema.GroupKind
	unseen func(schema.GroupKind)
}

func (s selecting) with(ctx context.Context, o metav1.ListOptions) (context.Context, *passage) {
	p := &passage{kind: s.kind}
	ctx = context.WithValue(ctx, passageKey{}, p)
	if o.LabelSelector == "" && o.FieldSelector == "" {
		return ctx, p
	}
	return WithSelectors(ctx, Selectors{Label: o.LabelSelector, Field: o.FieldSelector}), p
}

// passed reports an answered request that no transport has asked about. err is its result.
func (s selecting) passed(p *passage, err error) {
	var status apierrors.APIStatus
	if answered := err == nil || errors.As(err, &status); answered && !p.seen.Load() && s.unseen != nil {
		s.unseen(s.kind)
	}
}

// ListWithContext implements cache.ListerWithContext.
func (s selecting) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	ctx, p := s.with(ctx, o)
	list, err := s.ListerWatcherWithContext.ListWithContext(ctx, o)
	s.passed(p, err)
	return list, err
}

// WatchWithContext implements cache.WatcherWithContext.
func (s selecting) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	ctx, p := s.with(ctx, o)
	w, err := s.ListerWatcherWithContext.WatchWithContext(ctx, o)
	s.passed(p, err)
	return w, err
}
