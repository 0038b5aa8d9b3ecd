package feed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// registry has the informers of a Share.
type registry struct {
	roles *sharding.Roles

	mu        sync.Mutex
	informers []*Informer // informers of NewWholeInformer come last
	ended     ended
	hasEnded  atomic.Bool
	keepNames atomic.Bool
	wide      map[schema.GroupKind]bool // see Widen
}

// Where returns the informers that a condition holds for, which is called with mu held.
func (r *registry) Where(is func(*Informer) bool) (out []*Informer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, inf := range r.informers {
		if is(inf) {
			out = append(out, inf)
		}
	}
	return out
}

// begins notes that an informer runs, and prepares it. It returns false if the informer ran before.
func (r *registry) begins(inf *Informer, prepare func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if inf.ran {
		return false
	}
	inf.ran, inf.Running = true, true
	prepare()
	return true
}

// ends removes an informer, which never runs again. If it held a share, its store is kept.
func (r *registry) ends(inf *Informer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	inf.Running = false
	if !inf.Apart {
		r.roles.Disuse(inf.Kind, inf.ByOwner)
	}
	r.informers = slices.DeleteFunc(slices.Clone(r.informers), func(other *Informer) bool { return other == inf })
	if inf.Sharded {
		r.ended[view{inf.Kind, inf.ByOwner}] = inf
		r.hasEnded.Store(true)
	}
}

// isOf reports whether an informer is of a kind, of the primary role if the kind has it.
func (r *registry) isOf(inf *Informer, kind schema.GroupKind) bool {
	return inf.Kind == kind && !inf.Apart && (!inf.ByOwner || !r.roles.Sharded(kind))
}

// InformersOf returns the informers of a kind that have not stopped: of the primary role, if the kind has it.
func (r *registry) InformersOf(kind schema.GroupKind) []*Informer {
	return r.Where(func(i *Informer) bool { return r.isOf(i, kind) })
}

// Active returns the informers of sharded kinds that run.
func (r *registry) Active() []*Informer {
	return r.Where(func(i *Informer) bool { return i.Running && i.Sharded })
}

// running returns the informers of a kind that run.
func (r *registry) running(kind schema.GroupKind) []*Informer {
	return r.Where(func(i *Informer) bool { return i.Kind == kind && i.Running })
}

// viewing returns the running informers whose versions a key of table.Versions stands for.
func (r *registry) viewing(key string) []*Informer {
	return r.Where(func(i *Informer) bool {
		return i.Running && (i.Apart && i.WholeKey() == key || !i.Apart && i.VersionKey() == key)
	})
}

// caches returns the informers of a kind for the ledger.
func (r *registry) caches(kind schema.GroupKind) (out []ledger.Cache) {
	r.Where(func(i *Informer) bool {
		if i.Kind == kind {
			out = append(out, ledger.Cache{Stored: i.stored, Runs: i.Running, Whole: i.Apart, ByOwner: i.ByOwner})
		}
		return false
	})
	return out
}

// views returns what shows the versions of a key to the ledger.
func (r *registry) views(key string) (out []ledger.View) {
	for _, inf := range r.viewing(key) {
		out = append(out, inf)
	}
	return out
}

func (r *registry) Add(inf *Informer) *Informer {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := len(r.informers)
	if first := slices.IndexFunc(r.informers, func(i *Informer) bool { return i.Apart }); first >= 0 && !inf.Apart {
		at = first
	}
	r.informers = slices.Insert(slices.Clone(r.informers), at, inf)
	return inf
}

// KindOf returns the kind of an informer that this share made and that has not stopped. started is closed when the
// informer runs; from then on Warm and Load wait for it.
func (r *registry) KindOf(i cache.SharedIndexInformer) (kind schema.GroupKind, started <-chan struct{}, ok bool) {
	for _, inf := range r.Where(func(inf *Informer) bool { return !inf.Apart && cache.SharedIndexInformer(inf) == i }) {
		return inf.Kind, inf.started, true
	}
	return schema.GroupKind{}, nil, false
}

// Informers reports whether this share made informers of the kind that have not stopped, and whether one of them runs.
// For a kind that is primary and owned only the primary role counts.
func (r *registry) Informers(kind schema.GroupKind) (made, run bool) {
	return len(r.InformersOf(kind)) > 0, len(r.Where(func(i *Informer) bool { return i.Running && r.isOf(i, kind) })) > 0
}

// HoldsByOwner reports whether NewOwnedInformer made the informer.
func (r *registry) HoldsByOwner(i cache.SharedIndexInformer) bool {
	inf, ok := i.(*Informer)
	return ok && inf.ByOwner
}

// Heard reports whether this share made the informer and it has event handlers.
func (r *registry) Heard(i cache.SharedIndexInformer) bool {
	inf, ok := i.(*Informer)
	if !ok {
		return false
	}
	return len(inf.users()) > 0
}

// Exists reports whether any informer of the kind holds the object. If none does, it is gone or not this member's. For
// a kind that is primary and owned it asks informers of the primary role.
func (r *registry) Exists(kind schema.GroupKind, name types.NamespacedName) bool {
	_, exists := r.UID(kind, name)
	return exists
}

// UID returns the UID of the object that Exists is about; "" where a transform has removed it.
func (r *registry) UID(kind schema.GroupKind, name types.NamespacedName) (uid types.UID, exists bool) {
	key := cache.NewObjectName(name.Namespace, name.Name).String()
	for _, inf := range r.stores(kind) {
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
func (r *registry) Size(kind schema.GroupKind) int {
	most := 0
	for _, inf := range r.InformersOf(kind) {
		most = max(most, len(inf.GetIndexer().ListKeys()))
	}
	return most
}

// Known returns the kinds that are declared as primary or owned, and those that a running informer of this share is of.
func (r *registry) Known() []schema.GroupKind {
	kinds := r.roles.Kinds()
	for _, inf := range r.Where(func(i *Informer) bool { return i.Running }) {
		if !slices.Contains(kinds, inf.Kind) {
			kinds = append(kinds, inf.Kind)
		}
	}
	return kinds
}

// Knows reports whether a kind is in Known.
func (r *registry) Knows(kind schema.GroupKind) bool {
	return r.roles.Sharded(kind) || r.roles.Owned(kind) || len(r.running(kind)) > 0
}

// Stored returns the slot of a primary object that is in a store.
func (r *registry) Stored(kind schema.GroupKind, name types.NamespacedName) (slot.Slot, bool) {
	key := cache.NewObjectName(name.Namespace, name.Name).String()
	for _, inf := range r.stores(kind) {
		if inf.ByOwner {
			continue
		}
		obj, exists, err := inf.GetIndexer().GetByKey(key)
		if err != nil || !exists {
			continue
		}
		if n, _, ok := inf.SlotOf(obj); ok {
			return n, true
		}
	}
	return 0, false
}

// Widen has the informers of these kinds, and of no others, ask for all objects instead of those with the right label.
// Those that asked for something else before list the slots that they hold again; objects that only the wider list
// shows are looked up from then on. A watch narrows when it is next opened.
func (r *registry) Widen(kinds map[schema.GroupKind]bool) {
	r.mu.Lock()
	r.wide = kinds
	r.mu.Unlock()
	for _, inf := range r.Active() {
		scope, ok := inf.Source.scope.(*widening)
		if on := kinds[inf.Kind]; ok && scope.wide.Swap(on) != on {
			inf.Source.Refresh(inf.held())
		}
	}
}

// readProof reads the present version of a kind. It returns "" if no cache can be behind: the kind is not served, or no
// informer of it runs.
func (r *registry) readProof(ctx context.Context, key string) (string, error) {
	views := r.viewing(key)
	if len(views) == 0 {
		return "", nil
	}
	inf := views[0]
	version, err := inf.Source.readVersion(ctx)
	if inf.Source.Answered(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("informer of %s: %w", inf.Kind, err)
	}
	return version, nil
}

// ended are the informers of sharded kinds that have stopped and that no other one has replaced, by kind and role.
// registry.mu guards it. Their stores are what this member last knew: a key whose object is in one is no deletion.
type ended map[view]*Informer

// view is a kind in one of its roles.
type view struct {
	kind    schema.GroupKind
	byOwner bool
}

// Ended returns the kinds whose informers hold a share and have all stopped, in one of their roles. What this share
// shows of such a kind is old, and handlers hear nothing of it.
func (r *registry) Ended() []schema.GroupKind {
	var kinds []schema.GroupKind
	for _, inf := range r.endings() {
		kinds = append(kinds, inf.Kind)
	}
	slices.SortFunc(kinds, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(kinds)
}

// Stale reports whether informers have stopped that are needed to work on objects of a primary kind: informers of the
// kind itself, or of children whose owners are of the kind. See Ended.
func (r *registry) Stale(kind schema.GroupKind) bool {
	return slices.ContainsFunc(r.endings(), func(inf *Informer) bool {
		_, owner := inf.Role.Owners[kind]
		return owner || inf.Kind == kind && inf.Role.Primary
	})
}

// endings returns the informers that have stopped and were not replaced. One is replaced when another one of its kind
// and role has synced: until then what it holds is all that is known.
func (r *registry) endings() []*Informer {
	if !r.hasEnded.Load() {
		return nil
	}
	var over []view
	for _, inf := range r.successors() {
		if inf.HasSynced() { // it takes locks under which r.mu may be taken
			over = append(over, view{inf.Kind, inf.ByOwner})
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range over {
		delete(r.ended, v)
	}
	r.hasEnded.Store(len(r.ended) > 0)
	return slices.Collect(maps.Values(r.ended))
}

// successors returns the informers that run in place of ones that have stopped.
func (r *registry) successors() []*Informer {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*Informer
	for _, inf := range r.informers {
		if _, ended := r.ended[view{inf.Kind, inf.ByOwner}]; ended && inf.Running {
			out = append(out, inf)
		}
	}
	return out
}

// stores returns the informers of a kind whose stores show what exists.
func (r *registry) stores(kind schema.GroupKind) []*Informer {
	out := r.InformersOf(kind)
	for _, inf := range r.endings() {
		if inf.Kind == kind && inf.Role.Primary {
			out = append(out, inf)
		}
	}
	return out
}
