package delivery

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

const (
	// Wait for informers of whole kinds for sharedPatience. Then list what they should show, and wait for up to
	// sharedLimit. sharedPeriod is the time between two looks. The API server sends what was written
	// within milliseconds.
	sharedPatience = 500 * time.Millisecond
	sharedLimit    = 30 * time.Second
	sharedPeriod   = 2 * time.Millisecond
)

// reachShared waits until the stores of whole kinds show the versions. An informer never shows the version of an object
// that it does not select, for instance of another namespace. So if a version is not shown within sharedPatience, the
// informer's objects are listed, and reachShared waits for what that list shows. A kind that still lags is logged once.
func (s *Share) reachShared(ctx context.Context, versions table.Versions) {
	patience := time.NewTimer(sharedPatience)
	defer patience.Stop()
	tick := time.NewTicker(sharedPeriod)
	defer tick.Stop()
	for len(s.behindShared(versions)) > 0 {
		select {
		case <-tick.C:
			continue
		case <-patience.C:
		case <-ctx.Done():
			return
		}
		break
	}
	s.compareShared(ctx, versions)
}

// compareShared lists the whole kinds that do not show the versions, and waits until their stores show these lists. A
// kind that still lags is logged once.
func (s *Share) compareShared(ctx context.Context, versions table.Versions) {
	limited, cancel := context.WithTimeoutCause(ctx, sharedLimit, errWholeLags)
	defer cancel()
	var wg sync.WaitGroup
	for _, inf := range s.behindShared(versions) {
		wg.Go(func() {
			version := versions[inf.WholeKey()]
			err := inf.Whole.Reach(limited, version)
			if err == nil || ctx.Err() != nil {
				return
			}
			if _, logged := s.loggedBehind.LoadOrStore(inf.Kind, true); !logged {
				s.Log.Error(err,
					"Slots are opened although the cache of a kind that is whole may not show what was written in them: "+
						"a reconcile may see what was before", "kind", inf.Kind.String(), "version", version)
			}
		})
	}
	wg.Wait()
}

var errWholeLags = errors.New("its watch lags behind a list by more than " + sharedLimit.String())

// behindShared returns the informers of whole kinds that do not show their kind's version. Every informer counts: each
// may have its own namespace and watch.
func (s *Share) behindShared(versions table.Versions) []*feed.Informer {
	whole := s.Where(func(i *feed.Informer) bool {
		_, named := versions[i.WholeKey()]
		return named && i.Running && !i.Sharded
	})
	return slices.DeleteFunc(whole, func(inf *feed.Informer) bool {
		return resourceversion.Compare(inf.Whole.ShownVersion(), versions[inf.WholeKey()]) >= 0
	})
}

// Duties have slots beyond the slots of hashes. They have no objects, so a Share does not hold them. It only
// keeps what was written in them: Write, Versions, Unsettled and Settle also take slots of duties.

// hashes returns the slots of the set that have objects.
func (s *Share) hashes(set slot.Set) slot.Set {
	return set.Intersect(s.SlotCount().All())
}

// LoadDuties returns when the stores of whole kinds show all writes that a duty may depend on when it begins (rule R8).
// With CauseHanded these are its former owner's writes: the versions. With other causes they are all writes before the
// call. A kind that lags by more than half a minute is logged and not waited for. It returns early if ctx ends.
func (s *Share) LoadDuties(ctx context.Context, cause table.Cause, versions table.Versions) {
	if cause == table.CauseHanded {
		s.reachShared(ctx, versions)
		return
	}
	present := table.Versions{}
	for _, inf := range s.Where(func(i *feed.Informer) bool { return i.Running && !i.Sharded }) {
		present[inf.WholeKey()] = table.List
	}
	s.compareShared(ctx, present)
}
