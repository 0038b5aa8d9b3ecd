package judge

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/slot"
)

// ForeignWrite is an accepted write by a member that did not own the Website's slot.
type ForeignWrite struct {
	Write
	// Pod is the writer, Owner who owned the slot: "" is nobody.
	Pod, Owner string
	Slot       slot.Slot
}

// Versions says which version of the object the write made of which.
func (w Write) Versions() string {
	before := "unknown"
	if w.Before != nil {
		before = w.Before.Metadata.ResourceVersion
	}
	return "version " + before + " to " + version(w)
}

// Foreign returns the accepted writes to Websites and their children by members that did not own the slot at the
// write's resourceVersion. Writes of nothing but the labels of deliveries do not count: any member may do that.
func (l *Log) Foreign(world World) []ForeignWrite {
	var out []ForeignWrite
	type made struct{ resource, uid, version string }
	versions := map[made]bool{}
	for _, w := range l.Writes {
		who, ok := world.Pod(w.User)
		if ok && (world.labelled(w) || w.labelsOnly && world.right(w)) {
			continue // the body says enough, whatever was there before
		}
		if w.Object != nil {
			m := made{w.Resource, w.Object.Metadata.UID, w.Object.Metadata.ResourceVersion}
			if versions[m] && !lastWord(w) {
				continue // changed nothing: the version is an earlier write's
			}
			versions[m] = true
		}
		if !ok {
			continue
		}
		s := world.SlotOf(w.Site)
		if owner, own := l.owned(w, who, s); !own {
			out = append(out, ForeignWrite{w, who, owner, s})
		}
	}
	return out
}

// lastWord reports whether the write removed the last finalizer of an object being deleted. The response to that has
// the resourceVersion of the request.
func lastWord(w Write) bool {
	return w.Object.Metadata.DeletionTimestamp != nil && len(w.Object.Metadata.Finalizers) == 0
}

func (l *Log) owned(w Write, who string, s slot.Slot) (owner string, own bool) {
	if w.Object != nil && !lastWord(w) {
		v, ok := l.Tables.At(w.Object.Metadata.ResourceVersion)
		if ok {
			owner = v.Owner(s)
		}
		return owner, owner == who && who != ""
	}
	// Without a resourceVersion time has to do: the writer owned the slot at some moment of the request.
	for i, v := range l.Tables {
		if v.Received.After(w.Done) {
			break
		}
		over := i+1 < len(l.Tables) && !l.Tables[i+1].Done.IsZero() && l.Tables[i+1].Done.Before(w.Received)
		if owner = v.Owner(s); !over && owner == who && who != "" {
			return owner, true
		}
	}
	return owner, false
}

// MoveWrites returns the accepted writes, answered after from and up to to, that were made only in order to move
// objects, or because they had moved:
//   - by anybody, changes of Rota's labels and annotations, other than to the label that follows from the object's key
//     and never changes;
//   - by members, writes to a Website that was up to date, and to a child that stays the same for the same owner.
func (l *Log) MoveWrites(world World, from, to time.Time) []Write {
	var out []Write
	for _, w := range l.Writes {
		if w.Object == nil || !w.Done.After(from) || w.Done.After(to) {
			continue
		}
		_, member := world.Pod(w.User)
		if member && w.labelsOnly && world.right(w) {
			continue
		}
		if world.marked(w) || member && !world.labelled(w) && w.Before != nil && idle(w) {
			out = append(out, w)
		}
	}
	return out
}

// Labelled counts the accepted writes of members, answered after from and up to to, that changed nothing but the labels
// of deliveries.
func (l *Log) Labelled(world World, from, to time.Time) int {
	n := 0
	for _, w := range l.Writes {
		_, member := world.Pod(w.User)
		if member && w.Done.After(from) && !w.Done.After(to) && world.labelled(w) &&
			version(w) != w.Before.Metadata.ResourceVersion {
			n++
		}
	}
	return n
}

func version(w Write) string {
	if w.Object == nil {
		return ""
	}
	return w.Object.Metadata.ResourceVersion
}

// labelled says that a write did nothing but give an object the label that it has to have.
func (w World) labelled(write Write) bool {
	before, after := write.Before, write.Object
	if before == nil || after == nil || w.marked(write) {
		return false
	}
	name, value := w.label(write.Resource, write.Site)
	// A patch of labels may come too late, and change nothing.
	return name != "" && after.Metadata.Labels[name] == value && same(before, after) &&
		(write.labelsOnly || !after.partial && before.Metadata.Labels[name] != value)
}

// right reports whether an object has its label after a write, or the label that it had while it belonged to another
// Website, such as a namesake: the labeller may have seen it then, and corrects it when it sees it again.
func (w World) right(write Write) bool {
	return write.Object != nil && slices.ContainsFunc(append(slices.Clip(write.former), write.Site), func(s Site) bool {
		name, value := w.label(write.Resource, s)
		return name != "" && write.Object.Metadata.Labels[name] == value
	})
}

// marked reports whether a write changed labels or annotations of Rota, other than to give the object the label that it
// has to have.
func (w World) marked(write Write) bool {
	var labels, annotations map[string]string
	if write.Before != nil {
		labels, annotations = ours(write.Before.Metadata.Labels), ours(write.Before.Metadata.Annotations)
	}
	if !maps.Equal(annotations, ours(write.Object.Metadata.Annotations)) {
		return true
	}
	after := ours(write.Object.Metadata.Labels)
	if name, value := w.label(write.Resource, write.Site); name != "" && after[name] == value {
		delete(labels, name)
		delete(after, name)
	}
	return !maps.Equal(labels, after)
}

// same says that two versions of an object differ in labels at most.
func same(a, b *Object) bool {
	return a.Spec == b.Spec && maps.Equal(a.Data, b.Data) && a.Metadata.Generation == b.Metadata.Generation &&
		a.Status == b.Status && slices.Equal(a.Metadata.OwnerReferences, b.Metadata.OwnerReferences) &&
		slices.Equal(a.Metadata.Finalizers, b.Metadata.Finalizers) &&
		maps.Equal(a.Metadata.Annotations, b.Metadata.Annotations) &&
		(a.Metadata.DeletionTimestamp == nil) == (b.Metadata.DeletionTimestamp == nil)
}

func ours[V any](all map[string]V) map[string]V {
	out := map[string]V{}
	for key, value := range all {
		if domain, _, _ := strings.Cut(key, "/"); domain == names.Prefix || strings.HasSuffix(domain, "."+names.Prefix) {
			out[key] = value
		}
	}
	return out
}

// idle says that a member's write was to an object that needed none.
func idle(w Write) bool {
	before, after := w.Before, w.Object
	if w.Resource != websites {
		return before.Spec == after.Spec && maps.Equal(before.Data, after.Data) && before.owner() == after.owner()
	}
	return before.Metadata.DeletionTimestamp == nil && before.Status.ObservedGeneration == before.Metadata.Generation &&
		after.Metadata.Generation == before.Metadata.Generation
}

// TableWrites counts the versions of the table answered after from and up to to.
func (l *Log) TableWrites(from, to time.Time) int {
	n := 0
	for _, v := range l.Tables {
		if v.Done.After(from) && !v.Done.After(to) {
			n++
		}
	}
	return n
}
