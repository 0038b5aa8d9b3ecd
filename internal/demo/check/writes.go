package check

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/store"
	"github.com/rota-dev/rota/table"
)

// ForeignWrite is an accepted write by a member that did not own the Website's slot.
type ForeignWrite struct {
	Write
	// Pod is the writer, Owner who owned the slot: "" is nobody.
	Pod, Owner string
	Slot       slot.Slot
}

// Foreign returns the accepted writes to Websites and their ConfigMaps by members that did not own the slot at the
// write's resourceVersion. pod tells a member's process by its user; false: not a member.
func (l *Log) Foreign(pod func(user string) (string, bool), slotOf func(types.NamespacedName) slot.Slot) []ForeignWrite {
	var out []ForeignWrite
	type made struct{ resource, uid, version string }
	versions := map[made]bool{}
	for _, w := range l.Writes {
		if w.Object != nil {
			m := made{w.Resource, w.Object.Metadata.UID, w.Object.Metadata.ResourceVersion}
			if versions[m] && !lastWord(w) {
				continue // changed nothing: the version is an earlier write's
			}
			versions[m] = true
		}
		who, ok := pod(w.User)
		if !ok {
			continue
		}
		s := slotOf(w.Site)
		if owner, own := l.owned(w, who, s); !own {
			out = append(out, ForeignWrite{w, who, owner, s})
		}
	}
	return out
}

// lastWord says that the write removed the last finalizer of an object being deleted. The response to that has the
// resourceVersion of the request.
func lastWord(w Write) bool {
	return w.Object.Metadata.DeletionTimestamp != nil && len(w.Object.Metadata.Finalizers) == 0
}

func (l *Log) owned(w Write, who string, s slot.Slot) (owner string, own bool) {
	if w.Object != nil && !lastWord(w) {
		v, ok := l.Tables.At(w.Object.Metadata.ResourceVersion)
		if ok {
			owner = v.owner(s)
		}
		return owner, owner == who && who != ""
	}
	// Without a resourceVersion time has to do: the writer owned the slot at some moment of the request.
	for i, v := range l.Tables {
		if v.Received.After(w.Done) {
			break
		}
		over := i+1 < len(l.Tables) && l.Tables[i+1].Done.Before(w.Received)
		if owner = v.owner(s); !over && owner == who && who != "" {
			return owner, true
		}
	}
	return owner, false
}

// MoveWrites returns the accepted writes, answered after from and up to to, that were made only in order to move
// objects, or because they had moved: by anybody, those that change labels or annotations of Rota; by members, writes
// to a Website that was up to date already, and to a ConfigMap whose data stays the same for the same owner.
func (l *Log) MoveWrites(pod func(user string) (string, bool), from, to time.Time) []Write {
	var out []Write
	type object struct{ resource, uid string }
	last := map[object]*Object{}
	// What was there before is the next lower resourceVersion, not the write that was answered before.
	writes := slices.Clone(l.Writes)
	slices.SortStableFunc(writes, func(a, b Write) int { return table.CompareVersions(version(a), version(b)) })
	for _, w := range writes {
		if w.Object == nil {
			continue
		}
		o := object{w.Resource, w.Object.Metadata.UID}
		before := last[o]
		last[o] = w.Object
		if !w.Done.After(from) || w.Done.After(to) {
			continue
		}
		_, member := pod(w.User)
		if marked(before, w.Object) || member && before != nil && idle(w, before) {
			out = append(out, w)
		}
	}
	return out
}

func version(w Write) string {
	if w.Object == nil {
		return ""
	}
	return w.Object.Metadata.ResourceVersion
}

func marked(before, after *Object) bool {
	var labels, annotations map[string]string
	if before != nil {
		labels, annotations = before.Metadata.Labels, before.Metadata.Annotations
	}
	return !maps.Equal(ours(labels), ours(after.Metadata.Labels)) || !maps.Equal(ours(annotations), ours(after.Metadata.Annotations))
}

func ours(all map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range all {
		if domain, _, _ := strings.Cut(key, "/"); domain == store.Prefix || strings.HasSuffix(domain, "."+store.Prefix) {
			out[key] = value
		}
	}
	return out
}

// idle says that a member's write was to an object that needed none.
func idle(w Write, before *Object) bool {
	if w.Resource == "configmaps" {
		owner := func(o *Object) string {
			for _, ref := range o.Metadata.OwnerReferences {
				if ref.Kind == "Website" {
					return ref.UID
				}
			}
			return ""
		}
		return maps.Equal(before.Data, w.Object.Data) && owner(before) == owner(w.Object)
	}
	return before.Metadata.DeletionTimestamp == nil && before.Status.ObservedGeneration == before.Metadata.Generation &&
		w.Object.Metadata.Generation == before.Metadata.Generation
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

// ListedBy returns how many Websites members listed after from and up to to, where there are so many of them.
func (l *Log) ListedBy(pod func(user string) (string, bool), from, to time.Time, objects int) int {
	n := 0
	for _, list := range l.Lists {
		if _, ok := pod(list.User); !ok || !list.At.After(from) || list.At.After(to) {
			continue
		}
		if list.One {
			n += min(1, objects)
		} else {
			n += objects
		}
	}
	return n
}
