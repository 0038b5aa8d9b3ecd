package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// subject is the object of a query.
type subject struct {
	kind       schema.GroupKind
	namespaced bool
	namespace  string
	name       string
	// object is its metadata, or nil if it does not exist or could not be read. unread is why it could not be read.
	object *metav1.PartialObjectMetadata
	unread error
}

// String formats the object for people: Website default/hello-7.
func (s subject) String() string { return s.kind.Kind + " " + s.path() }

func (s subject) path() string {
	if s.namespace == "" {
		return s.name
	}
	return s.namespace + "/" + s.name
}

// metadata returns the metadata that determines the slot: only the name if the object could not be read.
func (s subject) metadata() *metav1.PartialObjectMetadata {
	if s.object != nil {
		return s.object
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name}}
}

// place is an object's place in the rota.
type place struct {
	// roles compute slots and labels as the slot's owner does.
	roles     *sharding.Roles
	slot      slot.Slot
	by, owner string
	// nowhere explains why the object has no slot; it is empty if it has one. uncertain is true if it may have one anyway.
	nowhere   string
	uncertain bool
	// also describes another member that owns the object, in a rollout that changes how the kind is sharded.
	also string
}

// sharding returns how a member shards and labels a kind.
func (r *Rota) sharding(report *coverage.Report, kind schema.GroupKind) *sharding.Roles {
	o := sharding.Options{Slots: r.Table.Slots, Key: r.Table.Key}
	mode, err := sharding.ParseMode(report.Setup[coverage.SettingDelivery])
	if err == nil && mode.Fits(o.Key) == nil {
		o.Mode = mode
	}
	s := sharding.New(o)
	for owner, namespaced := range report.Owners[kind] {
		s.Own(kind, owner, namespaced)
	}
	if len(report.Owners[kind]) == 0 {
		_ = s.Shard(kind) // no informer runs
	}
	return s
}

// place finds an object's slot. During a rollout members may shard the kind in different ways; then it prefers the way
// by which a member owns the object.
func (r *Rota) place(about subject) place {
	var first, found place
	for _, id := range slices.Sorted(maps.Keys(r.Reports)) {
		report := r.Reports[id]
		if _, sharded := report.Digests[about.kind]; !sharded {
			continue
		}
		p := r.placeBy(report, about)
		if p.nowhere == "" && r.Table.At(p.slot).Owner == id {
			if found.roles == nil {
				found = p
			} else if p.slot != found.slot {
				found.also = fmt.Sprintf("members shard the kind in different ways, so %s also owns it, by %s",
					id, p.by)
			}
		}
		if first.roles == nil {
			first = p
		}
	}
	if found.roles != nil {
		return found
	}
	if first.roles != nil {
		return first
	}
	if len(r.Members) == 0 {
		return place{nowhere: fmt.Sprintf("rota %s/%s has no members: start some", r.Namespace, r.Name)}
	}
	if len(r.Reports) == 0 {
		first = place{uncertain: true, nowhere: "no member reports its kinds"}
		if reason, unread := r.Unread("reports"); unread {
			first.nowhere = "the members' kinds could not be read: " + inOneLine(reason)
		}
		if r.Table.Key != slot.KeyUID {
			first.nowhere += fmt.Sprintf("; if %s is sharded by its own key, it is in %s", about.kind, r.slotByName(about))
		}
		return first
	}
	for _, report := range r.Reports {
		if slices.Contains(strings.Split(report.Setup[coverage.SettingDispatched], ","), about.kind.String()) {
			return place{uncertain: true, nowhere: fmt.Sprintf("stock programs work on the kind (rota run), and do not report "+
				"their objects; it is in %s", r.slotByName(about))}
		}
	}
	return place{nowhere: fmt.Sprintf("the members of rota %s/%s do not shard kind %s, but %s%s", r.Namespace, r.Name,
		about.kind, r.kindsText(), r.dutiesText())}
}

func (r *Rota) placeBy(report *coverage.Report, about subject) place {
	p := place{roles: r.sharding(report, about.kind)}
	obj := about.metadata()
	of := "its"
	owners := report.Owners[about.kind]
	if len(owners) > 0 {
		if about.object == nil {
			p.nowhere = "its slot depends on its controlling owner, and it could not be read"
			return p
		}
		ref := metav1.GetControllerOfNoCopy(obj)
		want := kindList(slices.Collect(maps.Keys(owners)))
		if ref == nil {
			p.nowhere = fmt.Sprintf("it has no controlling owner; members shard %s by its owner %s, and only see others to "+
				"adopt them", about.kind.Kind, want)
			return p
		}
		group, _ := schema.ParseGroupVersion(ref.APIVersion)
		kind := schema.GroupKind{Group: group.Group, Kind: ref.Kind}
		namespaced, ok := owners[kind]
		if !ok {
			p.nowhere = fmt.Sprintf("its controlling owner is %s %s; members shard %s by its owner %s", kind, ref.Name,
				about.kind.Kind, want)
			return p
		}
		p.owner = subject{kind: kind, namespace: map[bool]string{true: about.namespace}[namespaced], name: ref.Name}.String()
		of = "the"
	}
	if about.object == nil && r.Table.Key == slot.KeyUID {
		p.nowhere = "its slot depends on its UID, and it could not be read"
		return p
	}
	n, ok := p.roles.SlotOf(about.kind, obj)
	if !ok {
		p.nowhere = "its controlling owner cannot be read from its metadata"
		return p
	}
	p.slot = n
	what := map[slot.Key]string{slot.KeyName: "name", slot.KeyNamespace: "namespace", slot.KeyUID: "UID"}[r.Table.Key]
	if r.Table.Key == slot.KeyNamespace && about.namespace == "" {
		what = "name"
	}
	p.by = of + " " + what
	if p.owner != "" {
		p.by += " of its controlling owner"
	}
	return p
}

// Kinds returns the kinds that any member shards, sorted.
func (r *Rota) Kinds() []schema.GroupKind {
	kinds := map[schema.GroupKind]bool{}
	for _, report := range r.Reports {
		for kind := range report.Digests {
			kinds[kind] = true
		}
	}
	return slices.SortedFunc(maps.Keys(kinds), func(a, b schema.GroupKind) int {
		return strings.Compare(a.String(), b.String())
	})
}

// kindsBy returns the kinds that are sharded by their own keys, and the kinds sharded by their owners.
func (r *Rota) kindsBy() (own, owned []schema.GroupKind) {
	for _, kind := range r.Kinds() {
		isOwned := false
		for _, report := range r.Reports {
			isOwned = isOwned || len(report.Owners[kind]) > 0
		}
		if isOwned {
			owned = append(owned, kind)
		} else {
			own = append(own, kind)
		}
	}
	return own, owned
}

func (r *Rota) kindsText() string {
	own, owned := r.kindsBy()
	switch {
	case len(own)+len(owned) == 0:
		return "none so far"
	case len(owned) == 0:
		return kindList(own)
	case len(own) == 0:
		return kindList(owned) + " by their owners"
	default:
		return kindList(own) + ", and by their owners " + kindList(owned)
	}
}

// slotByName describes the slot of an object that is sharded by its own name or namespace.
func (r *Rota) slotByName(about subject) string {
	n := r.Slots.Of(r.Table.Key.Hash(about.namespace, about.name, ""))
	owner := "no member owns"
	if id := r.Table.At(n).Owner; id != "" {
		owner = id + " owns"
	}
	return fmt.Sprintf("slot %d, which %s", n, owner)
}

// dutiesText lists duties, which may work on any object.
func (r *Rota) dutiesText() string {
	var names []string
	for _, d := range r.Duties {
		if !table.OwnDuty(d.Name) {
			names = append(names, fmt.Sprintf("%s (%s)", d.Name, cmp.Or(d.Owner, "no member")))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; one of its duties may work on it: " + strings.Join(names, ", ")
}

func kindList(kinds []schema.GroupKind) string {
	words := make([]string, 0, len(kinds))
	for _, k := range kinds {
		words = append(words, k.String())
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}
