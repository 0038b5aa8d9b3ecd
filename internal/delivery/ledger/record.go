package ledger

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

const (
	// sweepFrom is the number of deletions from which on those that the informers have shown are removed. most bounds the
	// deletions that are tracked one by one.
	sweepFrom = 16
	most      = 1024
)

// View is an informer that shows the objects of a key.
type View interface {
	// Shows reports whether the store no longer has the deleted object.
	Shows(name types.NamespacedName, uid types.UID) bool
	// Version returns the store's version, or "" if the informer notes the versions that it sees.
	Version() string
}

// Views returns the running informers of a key.
type Views func(key string) []View

// Record is what the next owner of a slot must see (rule R8). Its methods must not be called concurrently.
//
// The API server answers most deletions without a version, and answers get lost. The next owner must also see the
// result of such a write. So a deletion is kept until the informers have shown it: they note every version that they
// see. When the slot is handed over, what is left is proved by a version that was read, consistently, after the write.
type Record struct {
	slots slot.Count
	views Views
	wrote map[string][]string // the highest versions, by key and slot
	owed  map[Place]*owed
}

// owed are writes at a place whose versions are not known, and whose results the next owner has to see.
type owed struct {
	// gone are the UIDs of deleted objects that a store may still have, by name.
	gone  map[types.NamespacedName]types.UID
	sweep int
	// blind counts the writes that informers cannot show.
	blind uint64
	// unread is true if the version could not be read. The next owner lists.
	unread bool
}

// NewRecord returns an empty Record. Slots beyond the count are the duties' slots.
func NewRecord(slots slot.Count, views Views) *Record {
	return &Record{slots: slots, views: views, wrote: map[string][]string{}, owed: map[Place]*owed{}}
}

// Note notes that a version was written at a place.
func (r *Record) Note(p Place, version string) {
	if more := max(int(r.slots), int(p.Slot)+1) - len(r.wrote[p.Key]); more > 0 {
		r.wrote[p.Key] = append(r.wrote[p.Key], make([]string, more)...)
	}
	if resourceversion.Compare(r.wrote[p.Key][p.Slot], version) < 0 {
		r.wrote[p.Key][p.Slot] = version
	}
}

// Deleted notes that an object does not exist any more. uid is the UID of that name in the stores, or "" if they have
// none.
func (r *Record) Deleted(p Place, name types.NamespacedName, uid types.UID) {
	o := r.at(p)
	if uid == "" || len(o.gone) >= most {
		o.blind++ // the object may not have come yet, or have gone again
		return
	}
	o.gone[name] = uid
	if len(o.gone) > o.sweep {
		r.forgetShown(p, o)
		o.sweep = 2*len(o.gone) + sweepFrom
	}
}

// Lost notes a write of which neither the version is known nor whether it was made.
func (r *Record) Lost(p Place) { r.at(p).blind++ }

// at returns the entry of a place, a new one if needed.
func (r *Record) at(p Place) *owed {
	o := r.owed[p]
	if o == nil {
		o = &owed{gone: map[types.NamespacedName]types.UID{}, sweep: sweepFrom}
		r.owed[p] = o
	}
	return o
}

// forgetShown removes the deletions that all informers have shown. Informers of sharded kinds note the versions that
// they see. Those of whole kinds do not, so forgetShown notes theirs: the highest. Each may be of other namespaces, and
// the one that showed the deletion is not known.
func (r *Record) forgetShown(p Place, o *owed) {
	views := r.views(p.Key)
	for name, uid := range o.gone {
		shown, version := true, ""
		for _, v := range views {
			shown = shown && v.Shows(name, uid)
			if at := v.Version(); resourceversion.Compare(version, at) < 0 {
				version = at
			}
		}
		if !shown {
			continue
		}
		delete(o.gone, name)
		if version != "" {
			r.Note(p, version)
		}
	}
}

// Versions returns the highest versions that were noted in the slots, by key; table.List where none could be read.
func (r *Record) Versions(set slot.Set) table.Versions {
	out := table.Versions{}
	slots := set.Slots()
	for key, versions := range r.wrote {
		for _, n := range slots {
			if int(n) < len(versions) {
				Raise(out, key, versions[n])
			}
		}
	}
	for p, o := range r.owed {
		if o.unread && set.Has(p.Slot) {
			Raise(out, p.Key, table.List)
		}
	}
	return out
}

// Owes reports whether there are writes in a slot whose versions are not known.
func (r *Record) Owes(n slot.Slot) bool {
	for p := range r.owed {
		if p.Slot == n {
			return true
		}
	}
	return false
}

// Awaits removes deletions that the informers have shown, and reports whether any are left in the slots.
func (r *Record) Awaits(set slot.Set) bool {
	left := false
	for p, o := range r.owed {
		if !set.Has(p.Slot) {
			continue
		}
		r.forgetShown(p, o)
		if len(o.gone) == 0 && o.blind == 0 {
			delete(r.owed, p)
		}
		left = left || len(o.gone) > 0
	}
	return left
}

// Proof is what a version that is read after this proves at a place.
type Proof struct {
	place Place
	gone  map[types.NamespacedName]types.UID
	blind uint64
}

// Unproved returns what is owed in the slots, by key.
func (r *Record) Unproved(set slot.Set) map[string][]Proof {
	out := map[string][]Proof{}
	for p, o := range r.owed {
		if set.Has(p.Slot) {
			out[p.Key] = append(out[p.Key], Proof{p, maps.Clone(o.gone), o.blind})
		}
	}
	return out
}

// Unread notes that no version could be read for a proof.
func (r *Record) Unread(p Proof) {
	if o := r.owed[p.place]; o != nil {
		o.unread = true
	}
}

// Prove notes a version that is no older than anything that the proof is about, or "" if no cache can be behind.
func (r *Record) Prove(p Proof, version string) {
	if version != "" {
		r.Note(p.place, version)
	}
	o := r.owed[p.place]
	if o == nil {
		return
	}
	for name, uid := range p.gone {
		if o.gone[name] == uid {
			delete(o.gone, name)
		}
	}
	if o.blind == p.blind && len(o.gone) == 0 {
		delete(r.owed, p.place)
	}
}

// Forget removes what is owed in slots that other members have now.
func (r *Record) Forget(set slot.Set) {
	for p := range r.owed {
		if set.Has(p.Slot) {
			delete(r.owed, p)
		}
	}
}
