package delivery

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// Opened are the objects of a primary kind that handlers could not hear of before Open, each once. An event of an
// object of an owned kind counts as one of its owner.
type Opened struct {
	// Deleted were deleted since their slot was warmed. Some may exist again.
	Deleted []types.NamespacedName
	// Changed were written since their slot was warmed, the latest first. After them come owners of objects that were
	// written or deleted since; these owners need not exist.
	Changed []types.NamespacedName
	// Recent were written shortly before, the latest first. The former owner may not have reconciled the change.
	Recent []types.NamespacedName
	// Others are the rest, those written last first. After an expel, objects that changed while nobody owned the slot are
	// among them, and should come before those that did not change. The last are owners that do not exist and still have
	// children: nobody may have reconciled their deletion. Such owners are in Recent if a child was written shortly
	// before.
	Others []types.NamespacedName
}

// All returns the objects of all four lists.
func (o Opened) All() []types.NamespacedName {
	return slices.Concat(o.Deleted, o.Changed, o.Recent, o.Others)
}

// Open lets handlers hear of the slots from now on, and returns what they could not hear of: every object of sharded
// kinds in the slots, and every object deleted since the slots were warmed. It does not block. For kinds that cannot be
// listed (see Lacks), Options.Completed reports later.
func (s *Share) Open(set slot.Set) map[schema.GroupKind]Opened {
	s.Unmute(set)
	return s.Gather(set)
}

// OpenToReads has reads wait for what this member wrote in the slots, until they are shut (AwaitWrite). Unmute does,
// too; who lets others know that the slots are open calls OpenToReads before.
func (s *Share) OpenToReads(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openToReads(set)
}

// openToReads is OpenToReads. s.mu is held.
func (s *Share) openToReads(set slot.Set) {
	awaited := s.awaited.Load().Union(set.Intersect(*s.held.Load()))
	s.awaited.Store(&awaited)
}

// Unmute is the first half of Open: handlers hear of the slots from now on. Its cost does not depend on the number of
// objects.
func (s *Share) Unmute(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openToReads(set)
	open := s.open.Load().Union(set.Intersect(*s.held.Load()))
	s.open.Store(&open)
}

// Gather is the second half of Open: it returns what handlers could not hear of before Unmute. It goes through all
// objects of the slots. Call it once for each slot of Unmute, on any goroutine. The slots may have been shut or lost
// meanwhile. A deletion is returned once only.
func (s *Share) Gather(set slot.Set) map[schema.GroupKind]Opened {
	found := openings{}
	for _, inf := range s.active() {
		inf.source.mu.Lock()
		late := inf.source.late
		inf.source.mu.Unlock()
		inf.collect(set.Minus(late), found)
	}
	return found.sorted()
}

// openings are the results of Open, by primary kind.
type openings map[schema.GroupKind]*opening

// opening collects the results of Open for a kind from its informers.
type opening struct {
	missed, changed, recent map[types.NamespacedName]bool
	// written are the versions of the objects in the stores, and empty for owners that no store has.
	written map[types.NamespacedName]string
}

func (o openings) of(kind schema.GroupKind) *opening {
	if o[kind] == nil {
		o[kind] = &opening{
			missed: map[types.NamespacedName]bool{}, changed: map[types.NamespacedName]bool{},
			recent: map[types.NamespacedName]bool{}, written: map[types.NamespacedName]string{},
		}
	}
	return o[kind]
}

func (i *informer) collect(set slot.Set, found openings) {
	if i.role.Primary {
		found.of(i.kind)
	}
	i.collectMissed(set, found)
	since, recently := i.source.takeSince(set)
	for _, obj := range i.objects(set) {
		accessor, err := meta.Accessor(obj)
		if err != nil {
			continue
		}
		n, about, ok := i.slotOf(obj)
		if !ok {
			continue
		}
		o, version := found.of(about.Kind), accessor.GetResourceVersion()
		switch {
		case !i.role.Primary:
			o.named(about.Name)
			i.noteGoneOwner(about, n)
		case resourceversion.Compare(o.written[about.Name], version) <= 0:
			o.written[about.Name] = version
		}
		if since != nil && since[n] != "" && resourceversion.Compare(version, since[n]) > 0 {
			o.changed[about.Name] = true
		} else if recently != "" && resourceversion.Compare(version, recently) > 0 {
			o.recent[about.Name] = true
		}
	}
}

// collectMissed collects the deletions that handlers could not hear of.
func (i *informer) collectMissed(set slot.Set, found openings) {
	for _, about := range i.takeMissed(set) {
		if i.role.Primary {
			found.of(about.Kind).missed[about.Name] = true
		} else {
			found.of(about.Kind).changed[about.Name] = true
		}
	}
}

// tellMissed reports the deletions that a list of open slots has shown: handlers hear of events only.
func (s *Share) tellMissed(inf *informer, set slot.Set) {
	found := openings{}
	inf.collectMissed(set.Intersect(*s.open.Load()), found)
	if len(found) > 0 && s.completed != nil {
		s.completed(found.sorted())
	}
}

// named notes the owner of a child. If it does not exist, its deletion may have come while the slot had no owner, and
// who cleans up after it has to hear of it: a controller that starts anew does, from the events of the children.
func (o *opening) named(owner types.NamespacedName) {
	if _, there := o.written[owner]; !there {
		o.written[owner] = ""
	}
}

func (o *opening) sorted() Opened {
	var out Opened
	for name := range o.missed {
		out.Deleted = append(out.Deleted, name)
	}
	for name := range o.changed {
		if !o.missed[name] {
			out.Changed = append(out.Changed, name)
		}
	}
	for name := range o.written {
		switch {
		case o.missed[name] || o.changed[name]:
		case o.recent[name]:
			out.Recent = append(out.Recent, name)
		default:
			out.Others = append(out.Others, name)
		}
	}
	lastFirst := func(a, b types.NamespacedName) int { return resourceversion.Compare(o.written[b], o.written[a]) }
	slices.SortFunc(out.Changed, lastFirst)
	slices.SortFunc(out.Recent, lastFirst)
	slices.SortFunc(out.Others, lastFirst)
	return out
}
