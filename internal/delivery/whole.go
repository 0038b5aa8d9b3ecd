package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

const (
	// Wait for informers of whole kinds for sharedPatience. Then list what they should show, and wait for up to
	// sharedLimit. sharedPeriod and comparePeriod are the times between two looks. The API server sends what was written
	// within milliseconds.
	sharedPatience = 500 * time.Millisecond
	sharedLimit    = 30 * time.Second
	sharedPeriod   = 2 * time.Millisecond
	comparePeriod  = 20 * time.Millisecond
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
			version := versions[inf.wholeKey()]
			err := inf.reachList(limited, version)
			if err == nil || ctx.Err() != nil {
				return
			}
			if _, told := s.toldBehind.LoadOrStore(inf.kind, true); !told {
				s.log.Error(err,
					"Slots are opened although the cache of a kind that is whole may not show what was written in them: "+
						"a reconcile may see what was before", "kind", inf.kind.String(), "version", version)
			}
		})
	}
	wg.Wait()
}

var errWholeLags = errors.New("its watch lags behind a list by more than " + sharedLimit.String())

// behindShared returns the informers of whole kinds that do not show their kind's version. Every informer counts: each
// may have a namespace and a watch of its own.
func (s *Share) behindShared(versions table.Versions) []*informer {
	s.mu.Lock()
	var whole []*informer
	for _, inf := range slices.Concat(s.informers, s.besides) {
		if _, named := versions[inf.wholeKey()]; named && inf.running && !inf.sharded {
			whole = append(whole, inf)
		}
	}
	s.mu.Unlock()
	return slices.DeleteFunc(whole, func(inf *informer) bool {
		return resourceversion.Compare(inf.shownVersion(), versions[inf.wholeKey()]) >= 0
	})
}

// reachList returns nil once the store of a whole kind shows what a list showed that is as new as the version. It
// returns an error if ctx ends or the list fails.
func (i *informer) reachList(ctx context.Context, version string) error {
	select {
	case i.comparing <- struct{}{}: // one at a time: the others need no list of their own
		defer func() { <-i.comparing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if resourceversion.Compare(i.compared, version) >= 0 {
		return nil
	}
	listed, at, err := i.source.listVersions(ctx)
	if err != nil {
		return fmt.Errorf("list of %s: %w", i.kind, err)
	}
	tick := time.NewTicker(comparePeriod)
	defer tick.Stop()
	for !i.matches(listed, at) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	i.compared = at
	return nil
}

// matches reports whether the store is as new as a list at a version.
func (i *informer) matches(listed map[string]string, at string) bool {
	if resourceversion.Compare(i.shownVersion(), at) >= 0 {
		return true
	}
	for key, version := range listed {
		obj, there, err := i.GetStore().GetByKey(key)
		if err != nil || !there || resourceversion.Compare(versionOf(obj), version) < 0 {
			return false
		}
	}
	for _, obj := range i.GetStore().List() { // what the list does not show was deleted before it or created after it
		key, err := cache.MetaNamespaceKeyFunc(obj)
		if err != nil {
			return false
		}
		if _, there := listed[key]; !there && resourceversion.Compare(versionOf(obj), at) <= 0 {
			return false
		}
	}
	return true
}

// listVersions returns the versions of the objects that the informer selects, and that of the list, as of now.
func (s *source) listVersions(ctx context.Context) (listed map[string]string, at string, err error) {
	listed = map[string]string{}
	at, err = s.eachListed(ctx, 0, func(obj runtime.Object) error {
		key, err := cache.MetaNamespaceKeyFunc(obj)
		listed[key] = versionOf(obj)
		return err
	})
	return listed, at, err
}

// Duties have slots beyond those of hashes. They have no objects, so a Share does not hold them. It only knows what was
// written in them: Write, Versions, Unsettled and Settle take slots of duties, too.

// hashes returns those of the slots that have objects.
func (s *Share) hashes(set slot.Set) slot.Set {
	return set.Intersect(s.SlotCount().All())
}

// LoadDuties returns when the stores of whole kinds show what a duty may have to see before it begins (rule R8). With
// CauseHanded that is what its former owner wrote: the versions. With other causes it is all that was written before
// the call. A kind that lags by more than half a minute is logged and not waited for. It returns early if ctx ends.
func (s *Share) LoadDuties(ctx context.Context, cause table.Cause, versions table.Versions) {
	if cause == table.CauseHanded {
		s.reachShared(ctx, versions)
		return
	}
	present := table.Versions{}
	s.mu.Lock()
	for _, inf := range slices.Concat(s.informers, s.besides) {
		if inf.running && !inf.sharded {
			present[inf.wholeKey()] = table.List
		}
	}
	s.mu.Unlock()
	s.compareShared(ctx, present)
}

// runsBeside reports whether an informer of NewWholeInformer of the kind runs. s.mu is held.
func (s *Share) runsBeside(kind schema.GroupKind) bool {
	return slices.ContainsFunc(s.besides, func(i *informer) bool { return i.kind == kind && i.running })
}
