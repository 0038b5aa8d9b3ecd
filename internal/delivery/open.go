package delivery

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/feed"
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
	// Others are the rest, the latest first. After an expel, they include objects that changed while the slot had no
	// owner. These should come before objects that did not change. The last are owners that do not exist and still have
	// children: their deletion may not have been reconciled. Such owners are in Recent if a child was written shortly
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

// Gather is the second half of Open: it returns what handlers could not hear of before Unmute. It goes through all
// objects of the slots. Call it once for each slot of Unmute, on any goroutine. The slots may have been shut or lost
// meanwhile. A deletion is returned once only.
func (s *Share) Gather(set slot.Set) map[schema.GroupKind]Opened {
	found := openings{}
	for _, inf := range s.Active() {
		_, late := inf.Source.Gaps()
		found.collect(inf, set.Minus(late))
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

// collect collects what handlers could not hear of in the slots.
func (o openings) collect(i *feed.Informer, set slot.Set) {
	if i.Role.Primary {
		o.of(i.Kind)
	}
	o.collectMissed(i, set)
	since, recently := i.Source.TakeSince(set)
	for _, obj := range i.Objects(set) {
		accessor, err := meta.Accessor(obj)
		if err != nil {
			continue
		}
		n, about, ok := i.SlotOf(obj)
		if !ok {
			continue
		}
		of, version := o.of(about.Kind), accessor.GetResourceVersion()
		switch {
		case !i.Role.Primary:
			of.named(about.Name)
			i.NoteGoneOwner(about, n)
		case resourceversion.Compare(of.written[about.Name], version) <= 0:
			of.written[about.Name] = version
		}
		if since != nil && since[n] != "" && resourceversion.Compare(version, since[n]) > 0 {
			of.changed[about.Name] = true
		} else if recently != "" && resourceversion.Compare(version, recently) > 0 {
			of.recent[about.Name] = true
		}
	}
}

// collectMissed collects the deletions that handlers could not hear of.
func (o openings) collectMissed(i *feed.Informer, set slot.Set) {
	for _, about := range i.TakeMissed(set) {
		if i.Role.Primary {
			o.of(about.Kind).missed[about.Name] = true
		} else {
			o.of(about.Kind).changed[about.Name] = true
		}
	}
}

// missed reports the deletions that a list of open slots has shown: handlers hear of events only.
func (s *Share) missed(inf *feed.Informer, set slot.Set) {
	found := openings{}
	found.collectMissed(inf, set.Intersect(s.Unmuted()))
	if len(found) > 0 && s.options.Completed != nil {
		s.options.Completed(found.sorted())
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
