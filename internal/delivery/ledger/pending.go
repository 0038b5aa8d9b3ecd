package ledger

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/resourceversion"
)

// pendingSweep is the least number of writes of a kind at which those that are shown are looked for.
const pendingSweep = 64

// labelSets is how many label sets of a write are kept. An object that was given more is taken for one with any labels.
const labelSets = 16

// Unshown is what this member wrote to an object, by all of its writes that are not shown yet. It is immutable.
type Unshown struct {
	Kind schema.GroupKind
	Name types.NamespacedName
	// Places are where the object counts, and counted before.
	Places []Place
	// Version is the version from which on a cache shows the object as it was written, or as it was before Gone.
	Version string
	// UID is the UID of the object that was written last, or "" if it is not known.
	UID types.UID
	// Gone is the UID of an object of that name that was deleted, or "" if none was deleted or its UID is not known.
	Gone types.UID
	// Blind is true if a cache at Version may not show the deletion yet. See Pending.Prove.
	Blind bool
	// Labels are all label sets that the object was given, each once, or nil if they are not known.
	Labels []labels.Set

	// manyLabels is true if the object was given so many label sets that Labels are not kept.
	manyLabels bool

	serial uint64
	shown  []any // caches, as pointers
}

// IsShown reports whether a cache was found to show the write.
func (w *Unshown) IsShown(by any) bool { return slices.Contains(w.shown, by) }

// Pending keeps what a member wrote, by object, until its caches show it, so that the member's own reads can wait for
// it. The zero value is empty. Its methods may be called concurrently.
type Pending struct {
	mu     sync.Mutex
	serial uint64
	kinds  map[schema.GroupKind]*ofKind
}

type ofKind struct {
	writes   map[types.NamespacedName]*Unshown
	sweep    int // the number of writes from which on to look for shown ones
	sweeping bool
}

// Note notes a write after which the object had w.Version. If many is true, the caller should look for writes of the
// kind that are shown, and then call Swept.
func (r *Pending) Note(w Unshown) (many bool) { return r.add(w, false) }

// Delete notes that the object of w.Name whose UID is w.Gone was deleted. w.Version is a version that it had
// before, or the deletion's version, or "" if none is known. For many see Note.
func (r *Pending) Delete(w Unshown) (many bool) { return r.add(w, true) }

func (r *Pending) add(w Unshown, deleted bool) (many bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds == nil {
		r.kinds = map[schema.GroupKind]*ofKind{}
	}
	k := r.kinds[w.Kind]
	if k == nil {
		k = &ofKind{writes: map[types.NamespacedName]*Unshown{}, sweep: pendingSweep}
		r.kinds[w.Kind] = k
	}
	before := k.writes[w.Name]
	w.Blind = deleted && w.Version == "" && (before == nil || before.Version == "" || before.UID != w.Gone)
	if before != nil {
		w = join(*before, w)
	}
	r.serial++
	w.serial = r.serial
	k.writes[w.Name] = &w
	if k.sweeping || len(k.writes) < k.sweep {
		return false
	}
	k.sweeping = true
	return true
}

// Swept notes that the caller has looked for writes of the kind that are shown.
func (r *Pending) Swept(kind schema.GroupKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.kinds[kind]; k != nil {
		k.sweep, k.sweeping = 2*len(k.writes)+pendingSweep, false
	}
}

// join returns both writes of one object as one. The order in which answers came says nothing: a deletion stays, since
// the UID distinguishes its object from the next one of that name.
func join(before, w Unshown) Unshown {
	w.Places = union(before.Places, w.Places, func(a, b Place) bool { return a == b })
	if resourceversion.Compare(before.Version, w.Version) > 0 {
		w.Version = before.Version
	}
	if w.UID == "" {
		w.UID = before.UID
	}
	if w.Gone == "" {
		w.Gone = before.Gone
	}
	w.Blind = w.Blind || before.Blind && w.Gone == before.Gone
	w.Labels = union(before.Labels, w.Labels, maps.Equal[labels.Set])
	if w.manyLabels = before.manyLabels || len(w.Labels) > labelSets; w.manyLabels {
		w.Labels = nil
	}
	return w
}

// union returns kept, and what only more has. It changes neither.
func union[T any](kept, more []T, equal func(a, b T) bool) []T {
	if len(kept) == 0 {
		return more
	}
	kept = slices.Clip(kept)
	for _, one := range more {
		if !slices.ContainsFunc(kept, func(other T) bool { return equal(one, other) }) {
			kept = append(kept, one)
		}
	}
	return kept
}

// Of returns the unshown writes to an object, or nil if there are none.
func (r *Pending) Of(kind schema.GroupKind, name types.NamespacedName) *Unshown {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.kinds[kind]; k != nil {
		return k.writes[name]
	}
	return nil
}

// In returns the unshown writes to objects of a kind in a namespace; "" stands for all namespaces.
func (r *Pending) In(kind schema.GroupKind, namespace string) []*Unshown {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.kinds[kind]
	if k == nil {
		return nil
	}
	var out []*Unshown
	for name, w := range k.writes {
		if namespace == "" || name.Namespace == namespace {
			out = append(out, w)
		}
	}
	return out
}

// Prove sets the version of a blind write: one that was read after the object was deleted. It returns the
// current state of the write, or nil if it was shown meanwhile.
func (r *Pending) Prove(w *Unshown, version string) *Unshown {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.current(w)
	if now == nil || now.serial != w.serial || !now.Blind {
		return now // another write came, or another reader proved it
	}
	proved := *now
	if resourceversion.Compare(proved.Version, version) < 0 {
		proved.Version = version
	}
	proved.Blind = false
	r.kinds[w.Kind].writes[w.Name] = &proved
	return &proved
}

// Shown notes that a cache shows a write. The write is forgotten when all of the caches do.
func (r *Pending) Shown(w *Unshown, by any, all []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.current(w)
	if now == nil || now.serial != w.serial || now.Blind {
		return // it was written again
	}
	shown := *now
	shown.shown = append(slices.Clip(now.shown), by)
	if slices.ContainsFunc(all, func(c any) bool { return !slices.Contains(shown.shown, c) }) {
		r.kinds[w.Kind].writes[w.Name] = &shown
		return
	}
	delete(r.kinds[w.Kind].writes, w.Name)
}

func (r *Pending) current(w *Unshown) *Unshown {
	if k := r.kinds[w.Kind]; k != nil {
		return k.writes[w.Name]
	}
	return nil
}
