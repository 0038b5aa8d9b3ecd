package keeper

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// source lists and watches the metadata of a kind, in whichever version the API server serves.
type source struct {
	client    metadata.Interface
	mapper    meta.ResettableRESTMapper
	kind      schema.GroupKind
	namespace string
	selector  string

	log logr.Logger

	mu       sync.Mutex
	resource *schema.GroupVersionResource // nil if unknown
	last     schema.GroupVersionResource  // the last known one
}

var _ cache.ListerWatcherWithContext = (*source)(nil)

// objects returns a client for the objects. The error is a meta.NoKindMatchError if the kind is not served.
func (s *source) objects() (metadata.ResourceInterface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resource == nil {
		m, err := s.mapper.RESTMapping(s.kind)
		if meta.IsNoMatchError(err) {
			s.mapper.Reset() // it may have been installed
			m, err = s.mapper.RESTMapping(s.kind)
		}
		if err != nil {
			return nil, err
		}
		if s.last != m.Resource && !s.last.Empty() {
			s.log.Info("A kind is followed in another version: the API server does not serve the former one any more",
				"kind", s.kind.String(), "from", s.last.GroupVersion().String(), "to", m.Resource.GroupVersion().String())
		}
		s.resource, s.last = &m.Resource, m.Resource
	}
	return s.client.Resource(*s.resource).Namespace(s.namespace), nil
}

// checked drops the resource if the API server does not serve it, and resets discovery: the kind may be served in
// another version by now.
func (s *source) checked(err error) error {
	if apierrors.IsNotFound(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.resource = nil
		s.mapper.Reset()
	}
	return err
}

// ListWithContext implements cache.ListerWithContext.
func (s *source) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	objects, err := s.objects()
	if err != nil {
		return nil, err
	}
	o.LabelSelector = s.selector
	list, err := objects.List(ctx, o)
	return list, s.checked(err)
}

// WatchWithContext implements cache.WatcherWithContext.
func (s *source) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	objects, err := s.objects()
	if err != nil {
		return nil, err
	}
	o.LabelSelector = s.selector
	w, err := objects.Watch(ctx, o)
	return w, s.checked(err)
}
