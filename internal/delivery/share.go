package delivery

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Options configure a Share. The zero value works.
type Options struct {
	// Slots, Key, Mode and Label mean the same as in sharding.Options.
	Slots slot.Count
	Key   slot.Key
	Mode  sharding.Mode
	Label bool
	// Logger is used sparingly: lost connections and retries. The zero value discards.
	Logger logr.Logger
	// Plain is true if clients are fakes, whose watches do not begin with the existing objects.
	Plain bool
	// Patience is how long Load waits for a version in the stream before it lists, and Reached before it asks the API
	// server for a bookmark. 0 is 200 ms.
	Patience time.Duration
	// Excuse is how long the lists of a kind must have failed before slots open without it; see Lacks. 0 is 5 s.
	Excuse time.Duration
	// Leaves reports whether the owner of a slot on its way here is leaving. It must not block. If it is nil, no
	// owner counts as leaving.
	Leaves func(slot.Slot) bool
	// Ahead returns how many other members are to list the slots on their way to them before this one lists. It must not
	// block. If it is nil, there are none.
	Ahead func() int
	// Completed is called when a kind that slots were opened without has been listed. Its argument is what Open would have
	// returned because of it, by primary kind. By then Lacks allows work on the slots. It is also called with deletions
	// that only a list of open slots showed. It must not block. It may be nil.
	Completed func(map[schema.GroupKind]Opened)
	// Mislabelled is called for objects of kinds selected by a label: objects that came although their label is wrong, and
	// objects in a store that have lost it. It is called repeatedly until the label is right. The writer of labels should
	// set it to the value that Share.Stamp returns for the object's current state. It is called concurrently. It must not
	// block, since deliveries wait for it, and must not change or keep the object. It may be nil.
	Mislabelled func(kind schema.GroupKind, obj metav1.Object)
	// Unseen is called after each answered request of an informer if no transport asked KindFrom about the request. It is
	// called concurrently and must not block. It may be nil.
	Unseen func(kind schema.GroupKind)
	// Stopped is called when an informer that held a share of the kind has stopped; see Share.Ended. It is called
	// concurrently. It may be nil.
	Stopped func(kind schema.GroupKind)
}

// Share is the set of informers of one manager over its share of the objects. Create it with New. Its methods may be
// called concurrently, except that Warm, Load, Open, Shut and Release must not run at the same time for the same slot.
type Share struct {
	*feed.Common
	*feed.Reports
	*feed.OwnReads
	options Options
	// lacking is what Lacks reports, by primary kind, or nil if nothing is lacking. counting is held while it is computed.
	lacking  atomic.Pointer[map[schema.GroupKind]slot.Set]
	counting sync.Mutex

	loggedBehind sync.Map // whole kinds whose lag was logged
}

// New returns a Share that holds no slots. It panics if the options contradict each other.
func New(o Options) *Share {
	o.Patience, o.Excuse = cmp.Or(o.Patience, 200*time.Millisecond), cmp.Or(o.Excuse, defaultExcuse)
	s := &Share{options: o}
	s.Common = feed.New(feed.Options{
		Roles: sharding.New(sharding.Options{Slots: o.Slots, Key: o.Key, Mode: o.Mode, Label: o.Label}), Log: o.Logger,
		Patience: o.Patience, Excuse: o.Excuse, Plain: o.Plain, Leaves: o.Leaves, Ahead: o.Ahead,
		Mislabelled: o.Mislabelled, Unseen: o.Unseen, Stopped: o.Stopped, Complete: s.complete, Missed: s.missed,
	})
	s.Reports, s.OwnReads = feed.NewReports(s.Common), feed.NewOwnReads(s.Common)
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
	return s.Add(feed.NewInformer(s.Common, kind, lw, example, resync, indexers))
}

// NewOwnedInformer is NewInformer for objects by their owners, as declared by Own. It differs only for kinds that are
// primary as well. If Own was not called before the informer starts, it holds all objects.
func (s *Share) NewOwnedInformer(kind schema.GroupKind, lw cache.ListerWatcher, example runtime.Object,
	resync time.Duration, indexers cache.Indexers,
) cache.SharedIndexInformer {
	inf := feed.NewInformer(s.Common, kind, lw, example, resync, indexers)
	inf.ByOwner = true
	return s.Add(inf)
}

// NewWholeInformer makes an informer of all objects of a kind, whatever is sharded. Nothing of the share depends on it,
// except that duties begin when it shows what their former owners wrote in them (LoadDuties).
func (s *Share) NewWholeInformer(kind schema.GroupKind, lw cache.ListerWatcher, example runtime.Object,
	resync time.Duration, indexers cache.Indexers,
) cache.SharedIndexInformer {
	inf := feed.NewInformer(s.Common, kind, lw, example, resync, indexers)
	inf.Apart = true
	return s.Add(inf)
}

// AddOrphans calls sharding.Roles.AddOrphans. It logs if, as a result, the kind is not delivered like other kinds.
func (s *Share) AddOrphans(kind schema.GroupKind) error {
	had := s.Role(kind).Orphans
	if err := s.Roles.AddOrphans(kind); err != nil || had || s.Delivery() == sharding.Filter {
		return err
	}
	s.Log.Info("Every member is sent all objects of this kind, and keeps its share and the orphans: these have no label "+
		"to select them by",
		"kind", kind.String(), "delivery", s.Delivery().String())
	return nil
}

// Locate returns the slot of a primary object by its name. With key UID the name alone is not enough: ok is false if
// the object is not in a store and no deletion of it was seen in the last 10 minutes.
func (s *Share) Locate(kind schema.GroupKind, name types.NamespacedName) (n slot.Slot, ok bool) {
	if s.Key() != slot.KeyUID {
		return s.Slot(name.Namespace, name.Name, ""), true
	}
	if n, ok := s.Stored(kind, name); ok {
		return n, true
	}
	return s.Tombstones.Find(sharding.Subject{Kind: kind, Name: name})
}

// Live asks the API server, with a consistent read, whether an object of that name exists, be it the same or a
// namesake. It sees what the informers of the kind select.
func (s *Share) Live(ctx context.Context, kind schema.GroupKind, name types.NamespacedName) (bool, error) {
	for _, inf := range s.InformersOf(kind) {
		obj, _, err := inf.Source.LookUp(ctx, cache.NewObjectName(name.Namespace, name.Name), "")
		if err != nil && !feed.NotServed(err) {
			return false, fmt.Errorf("%s %s: %w", kind, name, err)
		}
		if obj != nil {
			return true, nil
		}
	}
	return false, nil
}

// Lacks reports whether the slot was opened although a kind cannot be listed that is needed to work on objects of a
// primary kind, or an informer that is needed has stopped (Ended). Nothing of that primary kind in the slot may be
// reconciled then.
func (s *Share) Lacks(kind schema.GroupKind, n slot.Slot) bool {
	if s.Stale(kind) {
		return true
	}
	lacking := s.lacking.Load()
	if lacking == nil {
		return false
	}
	slots := (*lacking)[kind]
	return slots.Has(n)
}

// Versions returns, per kind, the highest resourceVersion that this member saw or wrote in the slots, deletions
// included (rule R8); for kinds that are cached whole, the highest that it wrote. Settle finds versions for writes
// without one. If it could not, the version is table.List. Kinds without a version are left out. A kind that is primary
// and owned has two keys.
func (s *Share) Versions(set slot.Set) table.Versions {
	out := s.Written(set)
	hashes := s.hashes(set)
	for _, inf := range s.Active() {
		all := inf.WithOrphans(hashes)
		ledger.Raise(out, inf.VersionKey(), inf.Source.Highest(all.Slots()))
	}
	return out
}
