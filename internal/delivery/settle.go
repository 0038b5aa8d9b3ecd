package delivery

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/delivery/written"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

const (
	// settlePatience is how long Settle waits for the informers. The next owner reaches a version that they have seen
	// sooner than one that was read: the latter is that of the whole store, and on a quiet kind the next owner has to
	// list.
	settlePatience = 100 * time.Millisecond
	settlePeriod   = 2 * time.Millisecond
	// settleTimeout bounds the reads of Settle. The slots are shut meanwhile.
	settleTimeout = time.Second
)

// views returns the running informers whose versions a key stands for. s.mu is held.
func (s *Share) views(key string) []written.View {
	var out []written.View
	for _, inf := range s.viewing(key) {
		out = append(out, inf)
	}
	return out
}

func (s *Share) viewing(key string) []*informer {
	var out []*informer
	for _, inf := range s.besides {
		if inf.running && inf.wholeKey() == key {
			out = append(out, inf)
		}
	}
	for _, inf := range s.informers {
		if inf.running && inf.versionKey() == key {
			out = append(out, inf)
		}
	}
	return out
}

// Shows implements written.View.
func (i *informer) Shows(name types.NamespacedName, uid types.UID) bool {
	about := i.stored(cache.NamespacedNameAsObjectName(name))
	return about == nil || about.GetUID() != uid
}

// Unsettled reports whether Settle has anything to do for a slot, also because the API server did not answer before.
func (s *Share) Unsettled(n slot.Slot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Owes(n)
}

// Settle makes Versions include everything that this member wrote in the slots, deletions included. Call it when
// nothing is in flight there any more. It returns within 1.1 s. If the API server does not answer by then, Versions
// tells the slots' next owner to list, until another call of Settle succeeds or the slots are released.
func (s *Share) Settle(ctx context.Context, set slot.Set) {
	ctx, cancel := context.WithTimeout(ctx, settlePatience+settleTimeout)
	defer cancel()
	tick := time.NewTicker(settlePeriod)
	defer tick.Stop()
	for patience := time.Now().Add(settlePatience); s.awaits(set) && time.Now().Before(patience); {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	unproved := s.record.Unproved(set)
	s.mu.Unlock()
	var wg sync.WaitGroup
	for key, proofs := range unproved {
		wg.Go(func() {
			version, err := s.readProof(ctx, key)
			if err != nil {
				s.log.Info("Cannot read the version of a kind; the next owner of slots will list it", "kind", key, "error",
					err.Error())
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, p := range proofs {
				if err != nil {
					s.record.Unread(p)
				} else {
					s.record.Prove(p, version)
				}
			}
		})
	}
	wg.Wait()
}

// awaits reports whether informers have to show deletions in the slots.
func (s *Share) awaits(set slot.Set) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Awaits(set)
}

// readProof reads the present version of a kind. It returns "" if nobody can be behind: the kind is not served, or no
// informer of it runs.
func (s *Share) readProof(ctx context.Context, key string) (string, error) {
	s.mu.Lock()
	views := s.viewing(key)
	s.mu.Unlock()
	if len(views) == 0 {
		return "", nil
	}
	inf := views[0]
	version, err := inf.source.readVersion(ctx)
	if inf.source.answered(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("informer of %s: %w", inf.kind, err)
	}
	return version, nil
}

// ownedSuffix ends the key in table.Versions of the owned role of a kind that is primary as well. The two roles have
// separate streams, and neither may wait for a version that only the other one carries.
const ownedSuffix = "/owned"

// wholeSuffix ends the key in table.Versions of a kind's informers of NewWholeInformer.
const wholeSuffix = "/whole"

// wholeKey returns the key in table.Versions of an informer that holds all objects.
func (i *informer) wholeKey() string {
	if i.apart {
		return i.kind.String() + wholeSuffix
	}
	return i.kind.String()
}

// versionKey returns the key in table.Versions of a part of a kind's role.
func versionKey(kind schema.GroupKind, of, part sharding.Role) string {
	if part.Owned() && of.Primary {
		return kind.String() + ownedSuffix
	}
	return kind.String()
}

func (i *informer) versionKey() string { return versionKey(i.kind, i.share.Role(i.kind), i.role) }

// Versions returns, per kind, the highest resourceVersion that this member saw or wrote in the slots, deletions
// included (rule R8); for kinds that are cached whole, the highest that it wrote. Settle finds versions for writes
// without one. If it could not, the version is table.List. Kinds without a version are left out. A kind that is primary
// and owned has two keys.
func (s *Share) Versions(set slot.Set) table.Versions {
	s.mu.Lock()
	out := s.record.Versions(set)
	s.mu.Unlock()
	hashes := s.hashes(set)
	for _, inf := range s.active() {
		all := inf.withOrphans(hashes)
		written.Raise(out, inf.versionKey(), inf.source.highest(all.Slots()))
	}
	return out
}
