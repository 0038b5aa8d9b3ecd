package delivery

import (
	"context"
	"errors"
	"maps"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// stored returns what the store has in some slots. Where objects move between slots it includes what the reflector has
// not handed to the store yet, and leaves out what came after upTo, unless that is "". Elsewhere the caller waits for a
// barrier, and nothing comes while the slots are listed.
func (s *source) stored(set slot.Set, upTo string) map[stream.Name]stream.Place {
	out := map[stream.Name]stream.Place{}
	if set.Empty() {
		return out
	}
	if s.inf.owned() {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.core.Stored(set, upTo)
	}
	for n, obj := range s.inf.objects(set) {
		if about, err := meta.Accessor(obj); err == nil {
			name := stream.Name{Namespace: about.GetNamespace(), Name: about.GetName()}
			out[name] = stream.Place{Slot: n, UID: string(about.GetUID())}
		}
	}
	return out
}

// unlisted returns what the store has in some slots and a list at a version did not show. It is empty where a list
// shows whatever exists.
func (s *source) unlisted(set slot.Set, version string,
	listed func(stream.Name) bool,
) map[stream.Name]stream.Place {
	if !s.scope.leaves() {
		return nil
	}
	old := s.stored(set, version)
	maps.DeleteFunc(old, func(name stream.Name, _ stream.Place) bool { return listed(name) })
	return old
}

// verify looks up objects that a list of the slots at a version did not show. It returns those that exist there
// nevertheless, because their labels are wrong.
func (s *source) verify(ctx context.Context, names map[stream.Name]stream.Place, set slot.Set,
	version string,
) ([]stream.Object, error) {
	var mu sync.Mutex
	var out []stream.Object
	var errs []error
	var wg sync.WaitGroup
	free := make(chan struct{}, lookUps)
	for name, was := range names {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			key := cache.ObjectName(name)
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
			case accessErr != nil || string(about.GetUID()) != was.UID:
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
