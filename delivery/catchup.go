package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// CatchUp returns when the informers of primary kinds have seen everything that happened before it was called, and
// their handlers have been told. An owner about to give slots up thereby learns of every deletion that its
// successor's lists do not show any more. On a kind without traffic it takes seconds, since only a
// bookmark shows it: see Reached.
func (s *Share) CatchUp(ctx context.Context) error {
	informers := slices.DeleteFunc(s.active(), func(i *informer) bool { return !i.role.primary })
	errs := make([]error, len(informers))
	var wg sync.WaitGroup
	for n, inf := range informers {
		wg.Go(func() { errs[n] = s.catchUp(ctx, inf) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *Share) catchUp(ctx context.Context, inf *informer) error {
	version, err := inf.source.present(ctx)
	if inf.source.answered(err) {
		return nil // there is nothing left of which a deletion could be missed
	}
	if err != nil {
		return fmt.Errorf("informer of %s: catching up: %w", inf.kind, err)
	}
	return s.reachOne(ctx, inf, version)
}
