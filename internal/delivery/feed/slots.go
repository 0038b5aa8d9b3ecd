package feed

import (
	"iter"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// slots are the slots of a Share.
type slots struct {
	// held and open are read for every event; they change under mu. open is a subset of held. In the slots of awaited,
	// which includes open, reads wait for what this member wrote.
	held, open, awaited atomic.Pointer[slot.Set]
	ledElsewhere        atomic.Bool

	mu   sync.Mutex
	anew slot.Set // slots of HoldAnew, until Load
}

func newSlots() *slots {
	s := &slots{}
	s.held.Store(&slot.Set{})
	s.open.Store(&slot.Set{})
	s.awaited.Store(&slot.Set{})
	return s
}

// Want adds slots to those held. anew are those that HoldAnew brings.
func (s *slots) Want(set, anew slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held.Load().Union(set)
	s.held.Store(&held)
	s.anew = s.anew.Union(anew)
}

// Unmuted returns the slots of which handlers hear.
func (s *slots) Unmuted() slot.Set { return *s.open.Load() }

// Silence closes slots.
func (s *slots) Silence(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open, awaited := s.open.Load().Minus(set), s.awaited.Load().Minus(set)
	s.open.Store(&open)
	s.awaited.Store(&awaited)
}

// Drop removes slots from those held.
func (s *slots) Drop(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held.Load().Minus(set)
	s.held.Store(&held)
	s.anew = s.anew.Minus(set)
}

// Holds reports whether the share holds the slot, or is about to.
func (s *slots) Holds(n slot.Slot) bool { return s.held.Load().Has(n) }

// Held returns the slots that the share holds, or is about to.
func (s *slots) Held() slot.Set { return *s.held.Load() }

// TakeAnew returns the slots of the set that HoldAnew did not bring: those held before, or made wanted by Hold.
func (s *slots) TakeAnew(set slot.Set) slot.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := set.Minus(s.anew)
	s.anew = s.anew.Minus(set)
	return rest
}

// OpenToReads has reads wait for what this member wrote in the slots, until they are shut (AwaitWrite). Unmute does
// so as well; call OpenToReads first if others may learn before Unmute that the slots are open.
func (s *slots) OpenToReads(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openToReads(set)
}

// openToReads is OpenToReads with mu held.
func (s *slots) openToReads(set slot.Set) {
	awaited := s.awaited.Load().Union(set.Intersect(*s.held.Load()))
	s.awaited.Store(&awaited)
}

// Unmute is the first half of Open: handlers hear of the slots from now on. Its cost does not depend on the number of
// objects.
func (s *slots) Unmute(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openToReads(set)
	open := s.open.Load().Union(set.Intersect(*s.held.Load()))
	s.open.Store(&open)
}

// LedElsewhere sets whether a process that is no member works on all objects and hears of their deletions: a leader
// with stock leader election. Meanwhile none are recorded, however long members wait with the slots that they hold.
func (s *slots) LedElsewhere(yes bool) { s.ledElsewhere.Store(yes) }

// IsLedElsewhere returns what LedElsewhere set last.
func (s *slots) IsLedElsewhere() bool { return s.ledElsewhere.Load() }

// urgent reports whether slots have to be listed at once: no member works on some of them, or this member works on
// nothing.
func (s *slots) urgent(set slot.Set) bool {
	if open := s.open.Load(); open.Empty() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	anew := set.Intersect(s.anew)
	return !anew.Empty()
}

// placement maps an informer's objects to slots.
type placement struct {
	share *Common
	Kind  schema.GroupKind
	Role  sharding.Role
	// ByOwner is true if the informer holds objects by their owners, even if the kind is primary as well. Apart is true if
	// it holds all objects, whether or not the kind is sharded. See NewWholeInformer.
	ByOwner, Apart bool
}

// SlotOf returns the slot of an object, or of the object within a cache.DeletedFinalStateUnknown. An orphan is in none
// of the rota's slots, and no object is reconciled because of it.
func (p *placement) SlotOf(obj any) (slot.Slot, sharding.Subject, bool) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		if gone.Obj == nil {
			namespace, name, err := cache.SplitMetaNamespaceKey(gone.Key)
			if err != nil || p.mobile() {
				return 0, sharding.Subject{}, false
			}
			return p.share.Slot(namespace, name, ""),
				sharding.Subject{Kind: p.Kind, Name: types.NamespacedName{Namespace: namespace, Name: name}}, true
		}
		obj = gone.Obj
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return 0, sharding.Subject{}, false
	}
	n, about, ok := p.share.SlotBy(p.Kind, p.Role, accessor)
	if !ok && p.Role.Adopts(accessor) {
		return p.share.OrphanSlot(), sharding.Subject{}, true
	}
	return n, about, ok
}

// place is slotOf without what is to be reconciled. It is called for every event of the watch.
func (p *placement) place(obj metav1.Object) (n slot.Slot, ok bool) {
	if p.Role.Owned() {
		n, _, ok = p.SlotOf(obj)
		return n, ok
	}
	return p.share.Slot(obj.GetNamespace(), obj.GetName(), string(obj.GetUID())), true
}

// object converts an object for the stream.
func (l *lister) object(obj runtime.Object, about metav1.Object) stream.Object {
	n, in := l.inf.place(about)
	return stream.Object{
		Name: stream.Name{Namespace: about.GetNamespace(), Name: about.GetName()}, UID: string(about.GetUID()),
		Version: about.GetResourceVersion(), Slot: n, In: in, Right: l.scope.Right(about), Body: obj,
	}
}

// count counts an object of slot n in an answer to a request for the slots asked.
func (l *lister) count(n slot.Slot, asked slot.Set) {
	l.received.Add(1)
	if !asked.Has(n) {
		l.foreign.Add(1)
	}
}

// mislabelled reports objects. l.mu is not held.
func (l *lister) mislabelled(objs ...metav1.Object) {
	if report := l.inf.share.options.Mislabelled; report != nil {
		for _, obj := range objs {
			report(l.inf.Kind, obj)
		}
	}
}

// sharded reports whether the informer holds a share.
func (s *Source) sharded() bool { return s.on.Load() }

// mobile reports whether objects of one name may be in different slots over time.
func (p *placement) mobile() bool { return p.Role.Owned() || p.share.Key() == slot.KeyUID }

// noteTombstone remembers the slot of a deleted primary object: with key UID its name does not show it.
func (p *placement) noteTombstone(about sharding.Subject, n slot.Slot) {
	if p.Role.Primary && p.share.Key() == slot.KeyUID && p.share.Holds(n) {
		p.share.Tombstones.Add(about, n)
	}
}

// NoteGoneOwner remembers the slot of an owner that no store has, as its child shows it: with key UID the owner's name
// does not.
func (p *placement) NoteGoneOwner(about sharding.Subject, n slot.Slot) {
	if p.share.Key() != slot.KeyUID || !p.share.Holds(n) {
		return
	}
	if _, stored := p.share.Stored(about.Kind, about.Name); !stored {
		p.share.Tombstones.Add(about, n)
	}
}

// Orphans are objects of an owned kind without a controlling owner. The member that reconciles an owner may adopt them.
// Which member that will be, only the owner's selector shows. So every member holds all orphans, while children are
// sharded. In the stream, orphans have a separate slot, beyond the rota's. Each informer holds it while it holds any
// slot.
//
//   - An adopted object moves from that slot to its owner's, and an orphaned one moves back, as an object that gets
//     another owner does. Handlers that hear of one of the two slots get an update in both cases, like handlers of a
//     stock informer. If they got an addition, controllers that count what they created would count it twice.
//   - A list of gained slots shows the orphans as well, at its version. An object that left a gained slot for the
//     orphans before must be visible, even if the stream has not caught up. Orphans that the list does not show are
//     left alone: the stream says what became of them.
//   - Orphans have no label to select by, and selectors have no "or". So the kind is delivered as with Filter.

// held returns the slots that the informer has to hold.
func (p *placement) held() slot.Set { return p.WithOrphans(p.share.Held()) }

// isOpen reports whether handlers may hear of a slot. The orphans' slot is open while any slot is.
func (p *placement) isOpen(n slot.Slot) bool {
	open := p.share.open.Load()
	if p.Role.Orphans && n == p.share.OrphanSlot() {
		return !open.Empty()
	}
	return open.Has(n)
}

// WithOrphans adds the orphans' slot to slots.
func (p *placement) WithOrphans(set slot.Set) slot.Set {
	if p.Role.Orphans && !set.Empty() {
		set.Add(p.share.OrphanSlot())
	}
	return set
}

// beside reports whether a list of slots shows an orphan that it was not asked for. Known ones are no news.
func (p *placement) beside(set slot.Set, obj any) bool {
	if !p.Role.Orphans || set.Has(p.share.OrphanSlot()) {
		return false
	}
	n, _, ok := p.SlotOf(obj)
	return ok && n == p.share.OrphanSlot()
}

// WholeKey returns the key in table.Versions of an informer that holds all objects.
func (p *placement) WholeKey() string {
	if p.Apart {
		return ledger.WholeKey(p.Kind)
	}
	return p.Kind.String()
}

func (p *placement) VersionKey() string { return ledger.Key(p.Kind, p.share.Role(p.Kind), p.Role) }

// slotIndex is the index that finds a store's objects by slot.
const slotIndex = "rota.dev/slot"

func (i *Informer) indexSlot(obj any) ([]string, error) {
	n, _, ok := i.SlotOf(obj)
	if !ok {
		return nil, nil
	}
	return slotNames[n : n+1 : n+1], nil
}

var slotNames = func() []string {
	names := make([]string, slot.MaxCount)
	for n := range names {
		names[n] = strconv.Itoa(n)
	}
	return names
}()

// inSlot returns the store's objects in a slot.
func (i *Informer) inSlot(n slot.Slot) []any {
	objects, err := i.GetIndexer().ByIndex(slotIndex, slotNames[n])
	if err != nil {
		return nil // cannot happen: the index is added before the informer runs
	}
	return objects
}

// Objects returns the store's objects in the slots.
func (i *Informer) Objects(set slot.Set) iter.Seq2[slot.Slot, any] {
	return func(yield func(slot.Slot, any) bool) {
		for _, n := range set.Slots() {
			for _, obj := range i.inSlot(n) {
				if !yield(n, obj) {
					return
				}
			}
		}
	}
}

// Populates reports whether the store has an object in the slots.
func (i *Informer) Populates(set slot.Set) bool {
	for _, n := range set.Slots() {
		if keys, err := i.GetIndexer().IndexKeys(slotIndex, slotNames[n]); err != nil || len(keys) > 0 {
			return true // an error cannot happen: the index is added before the informer runs
		}
	}
	return false
}
