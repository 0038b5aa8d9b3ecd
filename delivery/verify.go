package delivery

import (
	"context"
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/stream"
	"github.com/rota-dev/rota/slot"
)

// verify returns the objects of the store in the slots that a list at a version did not show although they exist there.
func (s *source) verify(ctx context.Context, set slot.Set, listed func(stream.Name) bool,
	version string,
) ([]stream.Object, error) {
	if !s.scope.leaves() {
		return nil, nil
	}
	var mu sync.Mutex
	var out []stream.Object
	var errs []error
	var wg sync.WaitGroup
	free := make(chan struct{}, lookUps)
	for text := range s.inf.keys(set) {
		key, err := cache.ParseObjectName(text)
		if listed(stream.Name(key)) {
			continue
		}
		old, exists, storeErr := s.inf.GetIndexer().GetByKey(text)
		if err != nil || storeErr != nil || !exists {
			continue
		}
		before, err := meta.Accessor(old)
		if err != nil {
			continue
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			obj, _, err := s.lookUp(ctx, key, version)
			for retries := 0; err != nil && (apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err)) && retries < 3 &&
				ctx.Err() == nil; retries++ {
				obj, _, err = s.lookUp(ctx, key, version)
			}
			about, accessErr := meta.Accessor(obj)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				errs = append(errs, err)
			case accessErr != nil || about.GetUID() != before.GetUID():
			default:
				if !s.scope.right(about) {
					s.mislabelled(about)
				}
				if o := s.object(obj, about); o.In && set.Has(o.Slot) {
					out = append(out, o)
				}
			}
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}
