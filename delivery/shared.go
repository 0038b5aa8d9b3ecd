package delivery

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/table"
)

const (
	// sharedPatience is how long Load waits for informers of whole kinds, sharedPeriod the time between two looks.
	// There is nothing to be listed for them; the API server sends what was written within milliseconds.
	sharedPatience = 2 * time.Second
	sharedPeriod   = 2 * time.Millisecond
)

// reachShared waits until the stores of whole kinds show the versions, as long as sharedPatience. An informer that does
// not select the object that was written, of another namespace for instance, never shows its version.
func (s *Share) reachShared(ctx context.Context, versions table.Versions) {
	ctx, cancel := context.WithTimeout(ctx, sharedPatience)
	defer cancel()
	tick := time.NewTicker(sharedPeriod)
	defer tick.Stop()
	for s.behindShared(versions) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// behindShared says that no informer of some whole kind shows the version named for it.
func (s *Share) behindShared(versions table.Versions) bool {
	s.mu.Lock()
	var whole []*informer
	for _, inf := range s.informers {
		if _, named := versions[inf.kind.String()]; named && inf.running && !inf.sharded {
			whole = append(whole, inf)
		}
	}
	s.mu.Unlock()
	shows := map[schema.GroupKind]bool{}
	for _, inf := range whole {
		version := inf.GetIndexer().LastStoreSyncResourceVersion()
		shows[inf.kind] = shows[inf.kind] || table.CompareVersions(version, versions[inf.kind.String()]) >= 0
	}
	for _, ok := range shows {
		if !ok {
			return true
		}
	}
	return false
}
