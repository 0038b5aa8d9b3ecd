package delivery

import (
	"context"
	"errors"
	"sync"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// ShowWritten returns when the informers show what this member wrote in slot n (see Share.Write), deletions included,
// and their handlers have heard of everything in the stores. For kinds that are cached whole it does not wait for
// handlers, and if their cache lags by more than half a minute, that is logged and not waited for. It returns an error
// if ctx ends.
func (s *Share) ShowWritten(ctx context.Context, n slot.Slot) error {
	var set slot.Set
	set.Add(n)
	s.Settle(ctx, set)
	informers := s.active()
	versions := s.written(set)
	errs := make([]error, len(informers))
	var wg sync.WaitGroup
	for at, inf := range informers {
		wg.Go(func() {
			errs[at] = inf.source.served(ctx, func(ctx context.Context) error {
				version := versions[inf.versionKey()]
				if version == table.List {
					return s.catchUp(ctx, inf)
				}
				return s.reachOne(ctx, inf, version, false)
			})
		})
	}
	wg.Wait()
	s.reachShared(ctx, versions)
	return errors.Join(errs...)
}
