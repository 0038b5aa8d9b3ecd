package delivery

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// Options say what to share. The zero value works.
type Options struct {
	// Slots, Key, Mode and Label are those of sharding.Options.
	Slots slot.Count
	Key   slot.Key
	Mode  sharding.Mode
	Label bool
	// Logger is used sparingly: lost connections and retries. The zero value discards.
	Logger logr.Logger
	// Plain says that clients are fakes, whose watches do not begin with what there is.
	Plain bool
	// Patience is how long Load waits for a version in the stream before it lists, and Reached before it asks the API
	// server for a bookmark. 0 is 200 ms.
	Patience time.Duration
	// Excuse is how long the lists of a kind must have failed before slots open without it; see Lacks. 0 is 5 s.
	Excuse time.Duration
	// Leaves reports whether the owner of a slot on its way here is leaving. It must not block. nil: none does.
	Leaves func(slot.Slot) bool
	// Completed is called when a kind that slots were opened without has been listed. Its argument is what Open would have
	// returned because of it, by primary kind. By then Lacks allows work on the slots. It is also called with deletions
	// that only a list of open slots showed. It must not block. nil: not called.
	Completed func(map[schema.GroupKind]Opened)
	// Mislabelled is called for objects of kinds selected by a label: those that came although their label is wrong, and
	// those in a store that have lost it. It is called again and again until the label is right. Whoever writes labels
	// should set it to what Share.Stamp returns for the object as it is by then. It is called concurrently. It must not
	// block, since deliveries wait for it, and must not change or keep the object. nil: not called.
	Mislabelled func(kind schema.GroupKind, obj metav1.Object)
	// Unseen is called after each answered request of an informer if no transport asked KindFrom about the request. It is
	// called concurrently and must not block. nil: not called.
	Unseen func(kind schema.GroupKind)
	// Stopped is called when an informer that held a share of the kind has stopped; see Share.Ended. It is called
	// concurrently. nil: not called.
	Stopped func(kind schema.GroupKind)
}

// Share is the set of informers of one manager over its share of the objects. Create it with New. Its methods may be
// called concurrently, except that Warm, Load, Open, Shut and Release must not run at the same time for the same slot.
type Share struct {
	*sharding.Roles
	*ledger.Ledger
	log      logr.Logger
	patience time.Duration
	plain    bool

	mislabelled func(schema.GroupKind, metav1.Object)
	unseen      func(schema.GroupKind)
	stopped     func(schema.GroupKind)
	excuse      time.Duration
	leaves      func(slot.Slot) bool
	completed   func(map[schema.GroupKind]Opened)
	// lacking is what Lacks reports, by primary kind; nil: nothing. counting is held while it is computed.
	lacking  atomic.Pointer[map[schema.GroupKind]slot.Set]
	counting sync.Mutex

	reading chan struct{} // has a value for each read of a kind's version in flight
	turns   turns

	// held and open are read for every event; they change under mu. open is a subset of held. In the slots of awaited,
	// which has those of open, reads wait for what this member wrote.
	held, open, awaited atomic.Pointer[slot.Set]

	ledElsewhere atomic.Bool
	honor        honor

	mu        sync.Mutex
	informers []*informer
	ended     ended
	besides   []*informer               // see NewWholeInformer
	anew      slot.Set                  // slots of HoldAnew, until Load
	wide      map[schema.GroupKind]bool // see Widen

	hasEnded atomic.Bool // ended has some

	toldBehind sync.Map // whole kinds whose lag was logged
}

// New returns a Share that holds no slots. It panics if the options contradict each other.
func New(o Options) *Share {
	if o.Patience == 0 {
		o.Patience = 200 * time.Millisecond
	}
	if o.Excuse == 0 {
		o.Excuse = defaultExcuse
	}
	s := &Share{
		Roles: sharding.New(sharding.Options{Slots: o.Slots, Key: o.Key, Mode: o.Mode, Label: o.Label}), plain: o.Plain,
		mislabelled: o.Mislabelled, unseen: o.Unseen, stopped: o.Stopped, ended: ended{}, log: o.Logger, patience: o.Patience,
		excuse: o.Excuse, leaves: o.Leaves, completed: o.Completed,
		reading: make(chan struct{}, readers), turns: newTurns(),
	}
	s.Ledger = ledger.New(ledger.Config{
		Roles: s.Roles, Log: s.log, Holds: s.Holds, Caches: s.caches, Views: s.views, Present: s.readProof, Sweep: s.forgetShown,
	})
	s.held.Store(&slot.Set{})
	s.open.Store(&slot.Set{})
	s.awaited.Store(&slot.Set{})
	return s
}

// NewInformer makes an informer of the kind, as cache.NewSharedIndexInformer and controller-runtime's
// cache.Options.NewInformer do. What it holds is decided when it starts: its share of a primary kind, or of an owned
// one, or all objects if neither Shard nor Own was called for the kind. It panics unless example is a pointer to a
// struct with metadata.
//
// The informer's handlers hear of open slots only. Its LastSyncResourceVersion is the position in the stream.
func (s *Share) NewInformer(kind schema.GroupKind, lw cache.ListerWatcher, example runtime.Object,
	resync time.Duration, indexers cache.Indexers,
) cache.SharedIndexInformer {
	return s.add(newInformer(s, kind, lw, example, resync, indexers))
}

// NewOwnedInformer is NewInformer for objects by their owners, as declared by Own. It differs only for kinds that are
// primary as well. If Own was not called before the informer starts, it holds all objects.
func (s *Share) NewOwnedInformer(kind schema.GroupKind, lw cache.ListerWatcher, example runtime.Object,
	resync time.Duration, indexers cache.Indexers,
) cache.SharedIndexInformer {
	inf := newInformer(s, kind, lw, example, resync, indexers)
	inf.byOwner = true
	return s.add(inf)
}

// NewWholeInformer makes an informer of all objects of a kind, whatever is sharded. Nothing of the share depends on it,
// except that duties begin when it shows what their former owners wrote in them (LoadDuties).
func (s *Share) NewWholeInformer(kind schema.GroupKind, lw cache.ListerWatcher, example runtime.Object,
	resync time.Duration, indexers cache.Indexers,
) cache.SharedIndexInformer {
	inf := newInformer(s, kind, lw, example, resync, indexers)
	inf.apart = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.besides = append(s.besides, inf)
	return inf
}

func (s *Share) add(inf *informer) *informer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.informers = append(s.informers, inf)
	return inf
}

// KindOf returns the kind of an informer that this share made and that has not stopped. started is closed when the
// informer runs; from then on Warm and Load wait for it.
func (s *Share) KindOf(i cache.SharedIndexInformer) (kind schema.GroupKind, started <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, inf := range s.informers {
		if cache.SharedIndexInformer(inf) == i {
			return inf.kind, inf.started, true
		}
	}
	return schema.GroupKind{}, nil, false
}

// Informers reports whether this share made informers of the kind that have not stopped, and whether one of them runs.
// For a kind that is primary and owned only the primary role counts.
func (s *Share) Informers(kind schema.GroupKind) (made, run bool) {
	informers := s.informersOf(kind)
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(informers) > 0, slices.ContainsFunc(informers, func(inf *informer) bool { return inf.running })
}

// HoldsByOwner reports whether NewOwnedInformer made the informer.
func (s *Share) HoldsByOwner(i cache.SharedIndexInformer) bool {
	inf, ok := i.(*informer)
	return ok && inf.byOwner
}

// Heard reports whether this share made the informer and it has event handlers.
func (s *Share) Heard(i cache.SharedIndexInformer) bool {
	inf, ok := i.(*informer)
	if !ok {
		return false
	}
	inf.mu.Lock()
	defer inf.mu.Unlock()
	return len(inf.handlers) > 0
}

// Exists reports whether any informer of the kind holds the object. If none does, it is gone or not this member's. For
// a kind that is primary and owned it asks informers of the primary role.
func (s *Share) Exists(kind schema.GroupKind, name types.NamespacedName) bool {
	_, exists := s.UID(kind, name)
	return exists
}

// UID returns the UID of the object that Exists is about; "" where a transform has removed it.
func (s *Share) UID(kind schema.GroupKind, name types.NamespacedName) (uid types.UID, exists bool) {
	key := cache.NewObjectName(name.Namespace, name.Name).String()
	for _, inf := range s.stores(kind) {
		obj, exists, err := inf.GetIndexer().GetByKey(key)
		if err != nil || !exists {
			continue
		}
		if about, err := meta.Accessor(obj); err == nil {
			uid = about.GetUID()
		}
		return uid, true
	}
	return "", false
}

// Size returns the number of objects of the kind in this member, from the informer that holds most. For a kind that is
// primary and owned it asks informers of the primary role.
func (s *Share) Size(kind schema.GroupKind) int {
	most := 0
	for _, inf := range s.informersOf(kind) {
		most = max(most, len(inf.GetIndexer().ListKeys()))
	}
	return most
}

// Holds reports whether the share holds the slot, or is about to.
func (s *Share) Holds(n slot.Slot) bool { return s.held.Load().Has(n) }

// Held returns the slots that the share holds, or is about to.
func (s *Share) Held() slot.Set { return *s.held.Load() }

// informersOf returns the informers of a kind that have not stopped, those of the primary role if it has one.
func (s *Share) informersOf(kind schema.GroupKind) []*informer {
	primary := s.Sharded(kind)
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*informer
	for _, inf := range s.informers {
		if inf.kind == kind && (!primary || !inf.byOwner) {
			out = append(out, inf)
		}
	}
	return out
}

// active returns the informers of sharded kinds that run.
func (s *Share) active() []*informer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*informer
	for _, inf := range s.informers {
		if inf.running && inf.sharded {
			out = append(out, inf)
		}
	}
	return out
}

// AddOrphans is that of sharding.Roles. It logs if the kind cannot be delivered as others are because of it.
func (s *Share) AddOrphans(kind schema.GroupKind) error {
	had := s.Role(kind).Orphans
	if err := s.Roles.AddOrphans(kind); err != nil || had || s.Delivery() == sharding.Filter {
		return err
	}
	s.log.Info("Every member is sent all objects of this kind, and keeps its share and the orphans: these have no label "+
		"to select them by",
		"kind", kind.String(), "delivery", s.Delivery().String())
	return nil
}

// Known returns the kinds that are declared as primary or owned, and those that a running informer of this share is of.
func (s *Share) Known() []schema.GroupKind {
	kinds := s.Kinds()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, inf := range slices.Concat(s.informers, s.besides) {
		if inf.running && !slices.Contains(kinds, inf.kind) {
			kinds = append(kinds, inf.kind)
		}
	}
	return kinds
}

// Knows reports whether a kind is among those of Known.
func (s *Share) Knows(kind schema.GroupKind) bool {
	if s.Sharded(kind) || s.Owned(kind) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs(kind) || s.runsBeside(kind)
}

// runs reports whether an informer of the kind runs that is not one of NewWholeInformer. s.mu is held.
func (s *Share) runs(kind schema.GroupKind) bool {
	return slices.ContainsFunc(s.informers, func(i *informer) bool { return i.kind == kind && i.running })
}
