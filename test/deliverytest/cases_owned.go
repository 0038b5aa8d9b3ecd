package deliverytest

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// parents are the owners of the suite's children. They are cluster-scoped, so that each key spreads them, and objects
// of all scopes can have them; they need not exist.
var parents = schema.GroupKind{Group: "suite.rota.dev", Kind: "Parent"}

// parent is the reference to the owner of a name; the zero value is none.
func parent(name string) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: parents.Group + "/v1", Kind: parents.Kind, Name: name, Controller: ptr.To(true),
		UID: types.UID(fmt.Sprintf("%016x-%s", slot.HashName("parent", name), name)),
	}
}

// ownedRig is a rig whose kind is owned.
func (s suite) ownedRig(t *testing.T, key slot.Key) *rig {
	t.Helper()
	r := s.rig(t)
	r.hashed = key
	r.share = s.share(delivery.Options{Slots: slots, Mode: s.delivery, Key: key, Mislabelled: r.reports.add})
	if !r.share.Own(r.kind.GroupKind, parents, false) {
		t.Fatal("not owned")
	}
	r.informer, r.faults = r.newInformer("")
	r.heard = r.listen(r.informer)
	return r
}

// keys runs a test of owned kinds with every key that goes with the mode of delivery.
func (s suite) keys(t *testing.T, test func(t *testing.T, key slot.Key)) {
	keys := []slot.Key{slot.KeyName}
	switch s.delivery { //nolint:exhaustive // the others take any key
	case sharding.SlotLabel:
		keys = append(keys, slot.KeyNamespace)
	case sharding.ShardSelector:
		keys = []slot.Key{slot.KeyUID}
	}
	for _, key := range keys {
		t.Run(key.String(), func(t *testing.T) { test(t, key) })
	}
}

// parentIn makes the name of an owner in a slot.
func (r *rig) parentIn(n slot.Slot) string {
	for {
		r.serial++
		ref := parent("p" + strconv.Itoa(r.serial))
		if r.share.Slot("", ref.Name, string(ref.UID)) == n {
			return ref.Name
		}
	}
}

// stamps are the labels of a child of an owner.
func (r *rig) stamps(owner string) map[string]string {
	out := map[string]string{label: r.label}
	obj := &metav1.ObjectMeta{}
	if owner != "" {
		obj.OwnerReferences = []metav1.OwnerReference{parent(owner)}
	}
	for name, value := range r.share.Stamps(r.kind.GroupKind, obj) {
		out[name] = value
	}
	return out
}

// child creates a child of an owner with the labels that it should have.
func (r *rig) child(owner string) Object {
	r.t.Helper()
	key := r.name()
	_, err := r.kind.Client.Create(r.ctx, key, nil)
	r.must(err)
	return r.adopt(key, owner, r.stamps(owner))
}

// adopt gives an object another owner, none where it is "", and labels, in one write.
func (r *rig) adopt(key types.NamespacedName, owner string, labels map[string]string) Object {
	r.t.Helper()
	var refs []metav1.OwnerReference
	if owner != "" {
		refs = append(refs, parent(owner))
	}
	obj, err := r.kind.Client.Adopt(r.ctx, key, refs, labels)
	r.must(err)
	return obj
}

// holds waits until the store has exactly those objects, at their versions.
func (r *rig) holds(want ...Object) {
	r.t.Helper()
	r.eventually(func() error {
		have := store(r.informer)
		for _, obj := range want {
			if have[obj.Key] != obj.Version {
				return fmt.Errorf("the store has %v at %q, want %q", obj.Key, have[obj.Key], obj.Version)
			}
		}
		if len(have) != len(want) {
			return fmt.Errorf("the store has %v, want %v", have, want)
		}
		return nil
	})
}

// Children are in their owners' slots, and move with them. A gain lists only the children of the gained slots.
func (s suite) ownedKind(t *testing.T) {
	s.keys(t, func(t *testing.T, key slot.Key) {
		r := s.ownedRig(t, key)
		mine, other, theirs := r.parentIn(1), r.parentIn(1), r.parentIn(5)
		a, b, orphan := r.child(mine), r.child(theirs), r.child("")
		r.child(r.parentIn(2))
		r.run(r.informer)
		r.own(only(1))
		r.holds(a)
		before := r.faults.Counts().Listed
		r.must(r.warm(r.ctx, only(5)))
		if listed := r.faults.Counts().Listed - before; s.delivery != sharding.Filter && listed != 1 {
			t.Errorf("gaining a slot with one child listed %d objects", listed)
		}
		r.holds(a, b)
		if s.delivery != sharding.Filter {
			r.wantHonored()
		}
		r.share.Release(only(5))
		r.holds(a)
		r.forget()
		// Within the slot, away, and back, with the label in the same write.
		a = r.adopt(a.Key, other, r.stamps(other))
		r.holds(a)
		r.adopt(a.Key, theirs, r.stamps(theirs))
		r.holds()
		a = r.adopt(a.Key, mine, r.stamps(mine))
		r.holds(a)
		orphan = r.adopt(orphan.Key, mine, r.stamps(mine))
		r.holds(a, orphan)
		last := r.adopt(orphan.Key, "", nil)
		r.holds(a)
		r.reached(last)
		r.wantHeard("update "+a.Key.String(), "delete "+a.Key.String(), "add "+a.Key.String(),
			"add "+orphan.Key.String(), "delete "+orphan.Key.String())
		r.delete(a.Key)
		r.holds()
	})
}

// A slot opens with children whose owner does not exist: the owner is told, so that a controller can clean up after it.
func (s suite) ownersThatAreGone(t *testing.T) {
	s.keys(t, func(t *testing.T, key slot.Key) {
		r := s.ownedRig(t, key)
		owner := r.parentIn(1)
		children := []Object{r.child(owner), r.child(owner), r.child(r.parentIn(5))}
		r.run(r.informer)
		r.must(r.warm(r.ctx, only(1)))
		r.must(r.share.Load(r.ctx, only(1), table.CauseExpelled, nil, false))
		name := types.NamespacedName{Name: owner}
		if got := r.share.Open(only(1))[parents].All(); !slices.Equal(got, []types.NamespacedName{name}) {
			t.Errorf("Open returns %v, want %v, the owner of two of %v", got, name, children)
		}
		if n, ok := r.share.Locate(parents, name); !ok || n != 1 {
			t.Errorf("the owner is in slot %v (%t), want 1", n, ok)
		}
	})
}

// Owners change without their children's labels, and labels without owners.
func (s suite) ownedLabelsGoWrong(t *testing.T) {
	if s.delivery == sharding.Filter {
		t.Skip("has no labels")
	}
	s.keys(t, func(t *testing.T, key slot.Key) {
		r := s.ownedRig(t, key)
		name := sharding.OwnerLabel(key, r.kind.GroupKind)
		mine, second, theirs := r.parentIn(1), r.parentIn(2), r.parentIn(5)
		var objs []Object
		for range 6 {
			objs = append(objs, r.child(mine))
		}
		r.run(r.informer)
		r.own(only(1, 2))
		r.holds(objs...)
		// To a slot of another member, and to one of ours.
		away := r.adopt(objs[0].Key, theirs, nil)
		objs[1] = r.adopt(objs[1].Key, second, nil)
		r.holds(objs[1:]...)
		r.reported(away, objs[1])
		r.relabel(away.Key, r.stamps(theirs)) // too late for us
		// Stripped, edited, copied from children elsewhere and here.
		objs[2] = r.relabel(objs[2].Key, map[string]string{name: ""})
		objs[3] = r.relabel(objs[3].Key, map[string]string{name: "nonsense"})
		objs[4] = r.relabel(objs[4].Key, map[string]string{name: r.stamps(theirs)[name]})
		objs[5] = r.relabel(objs[5].Key, map[string]string{name: r.stamps(second)[name]})
		r.holds(objs[1:]...)
		r.reported(objs[2:]...)
		// A list shows none of them.
		r.relists()
		r.must(r.share.Load(r.ctx, only(1, 2), table.CauseAssigned, nil, true))
		r.holds(objs[1:]...)
		r.noDeletions(away.Key, objs[1].Key) // a child that moved to another owner here is gone for the former owner
		r.gone(away.Key)
		// The informer looks up objects that left the watch.
		r.delete(objs[2].Key)
		r.wantSeen(objs[2].Key, "")
		r.adopt(objs[3].Key, theirs, r.stamps(theirs))
		r.gone(objs[3].Key)
		// The labels are put right.
		for _, i := range []int{1, 4, 5} {
			owner := mine
			if i == 1 {
				owner = second
			}
			objs[i] = r.relabel(objs[i].Key, r.stamps(owner))
		}
		r.holds(objs[1], objs[4], objs[5])
		// A child of somebody else's gets the label of one of ours.
		foreign := r.child(theirs)
		r.relabel(foreign.Key, map[string]string{name: r.stamps(mine)[name]})
		r.reported(foreign)
		r.holds(objs[1], objs[4], objs[5])
	})
}

// gone waits until an object that got another owner was heard to be gone and is. A reconcile that looks for it by its
// name may have seen its new state, which was in the store for a moment.
func (r *rig) gone(key types.NamespacedName) {
	r.t.Helper()
	r.eventually(func() error {
		if version, there := store(r.informer)[key]; there {
			return fmt.Errorf("the store has %v at %s", key, version)
		}
		if !slices.ContainsFunc(r.heard.history(), func(e event) bool { return e.what == "delete" && e.key == key }) {
			return fmt.Errorf("the end of %v was missed", key)
		}
		return nil
	})
}
