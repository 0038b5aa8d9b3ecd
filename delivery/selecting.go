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

type passageKey struct{}

// passage is a request of an informer on its way.
type passage struct {
	kind schema.GroupKind
	seen atomic.Bool // a transport asked for the kind
}

// KindFrom returns the kind of the informer whose ListerWatcher sends a request with the context; ok is false where no
// informer of a Share does. It is for transports: of what none has asked, Options.Unseen is told.
func KindFrom(ctx context.Context) (kind schema.GroupKind, ok bool) {
	p, ok := ctx.Value(passageKey{}).(*passage)
	if !ok {
		return schema.GroupKind{}, false
	}
	p.seen.Store(true)
	return p.kind, true
}

// selecting has the contexts of requests carry their informer's kind and their selectors.
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

// passed looks at a request that was answered with err.
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
