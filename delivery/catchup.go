package delivery

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CatchUp returns when the informers of sharded kinds have seen everything that happened before it was called, and
// their handlers have been told. An owner about to give slots up thereby learns of every deletion that its
// successor's lists do not show any more. On a kind without traffic it takes seconds, since only a
// bookmark shows it: see Reached.
func (s *Share) CatchUp(ctx context.Context) error {
	informers := s.active()
	errs := make([]error, len(informers))
	var wg sync.WaitGroup
	for n, inf := range informers {
		wg.Go(func() { errs[n] = s.catchUp(ctx, inf) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *Share) catchUp(ctx context.Context, inf *informer) error {
	list, err := inf.source.upstream.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("informer of %s: catching up: %w", inf.kind, err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("informer of %s: catching up: %w", inf.kind, err)
	}
	return s.reachOne(ctx, inf, accessor.GetResourceVersion())
}
