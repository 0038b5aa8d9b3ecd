package feed

import (
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/internal/upstream/clientgo"
	"github.com/rota-dev/rota/slot"
)

// ErrStopped ends waits on an informer that has stopped.
var ErrStopped = errors.New("informer stopped")

// Source is the ListerWatcher that an informer's reflector gets. It turns the API server's stream into one of the held
// slots. Package stream decides what goes to the store.
type Source struct {
	inf *Informer
	*flow
	*health
	*lister
	bookmarks
	noWatchList bool        // the upstream does not support WatchList
	on          atomic.Bool // the informer is sharded
	jobs        chan job    // what the pump should inject
	diagnosing  atomic.Bool // a diagnosis is under way
	begun       time.Time
}

var (
	_ cache.ListerWatcher            = (*Source)(nil)
	_ cache.ListerWatcherWithContext = (*Source)(nil)
)

func newSource(inf *Informer, lw cache.ListerWatcher) *Source {
	f := &flow{inf: inf, kick: make(signal, 1), suspects: make(signal, 1), done: make(chan struct{})}
	f.health = &health{flow: f, waiters: map[*waiter]struct{}{}}
	s := &Source{
		inf: inf, flow: f, health: f.health, bookmarks: bookmarks{nudges: make(signal, 1)},
		lister: &lister{inf: inf, upstream: &selecting{
			to: cache.ToListerWatcherWithContext(lw), kind: inf.Kind, unseen: inf.share.options.Unseen,
		}},
		noWatchList: clientgo.WatchListUnsupported(lw), jobs: make(chan job), begun: time.Now(),
	}
	f.health.diagnose, f.health.recheck = s.diagnose, s.recheckKind
	s.deliver(sharding.Whole)
	return s
}

// deliver sets the scope once the role of the informer is known. registry.mu is held.
func (s *Source) deliver(by sharding.Scope) {
	if by.Leaves() {
		widening := &widening{Scope: by}
		widening.wide.Store(s.inf.share.wide[s.inf.Kind])
		by = widening
	}
	s.scope = by
	s.start(stream.Config{
		Slots: int(s.inf.share.SlotCount()) + 1, // the last one is the orphans'
		Moves: s.inf.Role.Owned(), Namesakes: s.inf.share.Key() == slot.KeyUID && !s.inf.Role.Owned(), Selects: by.Leaves(),
	})
}

func (s *Source) sharded() bool { return s.on.Load() }

// IsWatchListSemanticsUnSupported reports whether WatchList is not supported. client-go calls it.
func (s *Source) IsWatchListSemanticsUnSupported() bool { return s.noWatchList }

// now is the time since the source was made.
func (s *Source) now() time.Duration { return time.Since(s.begun) }
