package feed

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/delivery/sharding"
)

// honorPeriod is the time between two checks whether API servers honor the selectors.
const honorPeriod = 5 * time.Second

// honor is whether API servers honored the shard selector lately, by kind. Only what they send shows that. The next
// answer may come from another server, or from the same one with another feature gate.
type honor struct {
	mu      sync.Mutex
	last    map[schema.GroupKind]Traffic
	ignored map[schema.GroupKind]bool
}

// look compares the traffic with the last look's, and returns the kinds whose verdict changed. A kind without
// traffic keeps its verdict.
func (h *honor) look(now map[schema.GroupKind]Traffic) (changed map[schema.GroupKind]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ignored == nil {
		h.ignored = map[schema.GroupKind]bool{}
	}
	changed = map[schema.GroupKind]bool{}
	for kind, t := range now {
		last := h.last[kind]
		if t.Received <= last.Received {
			continue
		}
		ignored := t.Foreign > last.Foreign
		if before, known := h.ignored[kind]; ignored != before || !known {
			changed[kind] = ignored
			h.ignored[kind] = ignored
		}
	}
	h.last = now
	return changed
}

func (h *honor) state() map[schema.GroupKind]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.ignored)
}

// Ignored says, by kind, whether the API server ignored the shard selector in its last answer with objects, as far as
// WatchSelectors has looked.
func (s *Reports) Ignored() map[schema.GroupKind]bool { return s.honor.state() }

// WatchSelectors looks for which kinds API servers ignore the shard selector, and logs it, until ctx ends.
func (s *Reports) WatchSelectors(ctx context.Context) {
	if s.Delivery() != sharding.ShardSelector {
		return
	}
	tick := time.NewTicker(honorPeriod)
	defer tick.Stop()
	known := map[schema.GroupKind]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for kind, ignored := range s.honor.look(s.selectorTraffic()) {
			switch {
			case ignored:
				s.Log.Info("The API server ignores the shard selector, so that this member receives all objects of the kind and "+
					"keeps its own: does it have the feature gate ShardedListAndWatch?", "kind", kind.String())
			case known[kind]:
				s.Log.Info("The API server honors the shard selector again", "kind", kind.String())
			}
			known[kind] = true
		}
	}
}
