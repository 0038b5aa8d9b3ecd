package feed

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/upstream/clientgo"
)

type selectorsKey struct{}

// SelectorsFrom returns the selectors of the request that a ListerWatcher is about to send with the context. Some
// ListerWatchers overwrite the selectors of the options. For instance, controller-runtime's cache does so if its user
// configured selectors. Code below such a ListerWatcher can restore them; see sharding.JoinSelectors.
func SelectorsFrom(ctx context.Context) sharding.Selectors {
	s, _ := ctx.Value(selectorsKey{}).(sharding.Selectors)
	return s
}

// WithSelectors returns a context whose selectors SelectorsFrom returns.
func WithSelectors(ctx context.Context, s sharding.Selectors) context.Context {
	return context.WithValue(ctx, selectorsKey{}, s)
}

type passageKey struct{}

// passage is a request of an informer in flight.
type passage struct {
	kind  schema.GroupKind
	seen  atomic.Bool // a transport asked for the kind
	asked *atomic.Pointer[sharding.Selection]
}

// NoteSelection is for transports. It notes what the request with the context, if an informer of a Share sends it, asks
// for whatever the informer's slots. Only a transport sees that: ListerWatchers add their users' namespaces and
// selectors to the options that they are given.
func NoteSelection(ctx context.Context, s sharding.Selection) {
	p, ok := ctx.Value(passageKey{}).(*passage)
	if !ok {
		return
	}
	if last := p.asked.Load(); last == nil || *last != s {
		p.asked.Store(&s)
	}
}

// Selections returns what the informers of the kinds of Digest ask for, in order. A kind is missing if the last request
// of one of its informers is not known; see NoteSelection.
func (s *Reports) Selections() map[schema.GroupKind][]sharding.Selection {
	out := map[schema.GroupKind][]sharding.Selection{}
	unknown := map[schema.GroupKind]bool{}
	for _, inf := range s.counted() {
		if asked := inf.Source.upstream.asked.Load(); asked == nil {
			unknown[inf.Kind] = true
		} else {
			out[inf.Kind] = append(out[inf.Kind], *asked)
		}
	}
	for kind, selections := range out {
		slices.SortFunc(selections, sharding.Selection.Compare)
		out[kind] = slices.Compact(selections)
	}
	for kind := range unknown {
		delete(out, kind)
	}
	return out
}

// KindFrom returns the kind of the informer whose ListerWatcher sends a request with the context; ok is false if no
// informer of a Share does. It is for transports: Options.Unseen reports requests that no transport has asked about.
func KindFrom(ctx context.Context) (kind schema.GroupKind, ok bool) {
	p, ok := ctx.Value(passageKey{}).(*passage)
	if !ok {
		return schema.GroupKind{}, false
	}
	p.seen.Store(true)
	return p.kind, true
}

type shardSelectorKey struct{}

// ShardSelectorFrom returns the shard selector of the request that a ListerWatcher is about to send with the context,
// if the options of this version of apimachinery have no place for it: then the transport adds it.
func ShardSelectorFrom(ctx context.Context) string {
	selector, _ := ctx.Value(shardSelectorKey{}).(string)
	return selector
}

// selecting adds the informer's kind and the selectors to the contexts of its requests.
type selecting struct {
	to     cache.ListerWatcherWithContext
	kind   schema.GroupKind
	unseen func(schema.GroupKind)
	asked  atomic.Pointer[sharding.Selection] // of the last request
}

func (s *selecting) with(ctx context.Context, req *sharding.Request) (context.Context, *passage) {
	p := &passage{kind: s.kind, asked: &s.asked}
	ctx = context.WithValue(ctx, passageKey{}, p)
	if req.ShardSelector != "" && !clientgo.SetShardSelector(&req.ListOptions, req.ShardSelector) {
		ctx = context.WithValue(ctx, shardSelectorKey{}, req.ShardSelector)
	}
	if req.LabelSelector == "" && req.FieldSelector == "" {
		return ctx, p
	}
	return WithSelectors(ctx, sharding.Selectors{Label: req.LabelSelector, Field: req.FieldSelector}), p
}

// passed reports an answered request that no transport has asked about. err is its result.
func (s *selecting) passed(p *passage, err error) {
	var status apierrors.APIStatus
	if answered := err == nil || errors.As(err, &status); answered && !p.seen.Load() && s.unseen != nil {
		s.unseen(s.kind)
	}
}

func (s *selecting) list(ctx context.Context, req sharding.Request) (runtime.Object, error) {
	ctx, p := s.with(ctx, &req)
	list, err := s.to.ListWithContext(ctx, req.ListOptions)
	s.passed(p, err)
	return list, err
}

func (s *selecting) watch(ctx context.Context, req sharding.Request) (watch.Interface, error) {
	ctx, p := s.with(ctx, &req)
	w, err := s.to.WatchWithContext(ctx, req.ListOptions)
	s.passed(p, err)
	return w, err
}

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
