package deliverytest

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// places knows names of objects in slots, where the UID decides: objects are created without the suite's label, so that
// no informer sees them, until one lies where it shall.
type places struct {
	spare map[slot.Slot][]Object // exist, without label
	made  map[types.NamespacedName]bool
	want  map[types.NamespacedName]slot.Slot
}

// slot returns the slot of an object.
func (r *rig) slot(obj Object) slot.Slot {
	return r.share.Slot(obj.Key.Namespace, obj.Key.Name, string(obj.UID))
}

// labels are those that an object has from its creation on: the suite's, and the labeller's.
func (r *rig) labels(key types.NamespacedName) map[string]string {
	out := map[string]string{label: r.label}
	if r.delivery == sharding.SlotLabel {
		out[r.hashLabel()] = sharding.LabelValue(r.hashed.Hash(key.Namespace, key.Name, ""))
	}
	return out
}

// hashLabel is the label by which objects are delivered with SlotLabel.
func (r *rig) hashLabel() string { return sharding.HashLabel(r.hashed, r.kind.GroupKind) }

// place returns a name whose first object lies in a slot.
func (r *rig) place(n slot.Slot) types.NamespacedName {
	r.t.Helper()
	if r.places.spare == nil {
		r.places = places{map[slot.Slot][]Object{}, map[types.NamespacedName]bool{}, map[types.NamespacedName]slot.Slot{}}
	}
	for len(r.places.spare[n]) == 0 {
		obj, err := r.kind.Client.Create(r.ctx, r.name(), nil)
		r.must(err)
		r.places.spare[r.slot(obj)] = append(r.places.spare[r.slot(obj)], obj)
	}
	key := r.places.spare[n][0].Key
	r.places.spare[n] = r.places.spare[n][1:]
	r.places.made[key], r.places.want[key] = true, n
	return key
}

// createPlaced creates an object in the slot for which its name was made.
func (r *rig) createPlaced(key types.NamespacedName) Object {
	r.t.Helper()
	for !r.places.made[key] {
		obj, err := r.kind.Client.Create(r.ctx, key, nil)
		r.must(err)
		if r.slot(obj) == r.places.want[key] {
			break
		}
		_, err = r.kind.Client.Delete(r.ctx, key)
		r.must(err)
	}
	delete(r.places.made, key)
	obj, err := r.kind.Client.Relabel(r.ctx, key, r.labels(key))
	r.must(err)
	return obj
}

// createUnseen creates an object that no informer selects.
func (r *rig) createUnseen(n slot.Slot) Object {
	r.t.Helper()
	key := r.key(n)
	var obj Object
	var err error
	if r.places.made[key] {
		obj, err = r.kind.Client.Update(r.ctx, key)
	} else {
		obj, err = r.kind.Client.Create(r.ctx, key, nil)
	}
	r.must(err)
	return obj
}

// reports are the objects reported as mislabelled.
type reports struct {
	mu   sync.Mutex
	seen map[types.NamespacedName]bool
}

func (r *reports) add(_ schema.GroupKind, obj metav1.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[types.NamespacedName]bool{}
	}
	r.seen[types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}] = true
}

func (r *reports) keys() []types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Keys(r.seen), compareNames)
}

// reported waits until objects are reported as mislabelled.
func (r *rig) reported(want ...Object) {
	r.t.Helper()
	r.eventually(func() error {
		for _, obj := range want {
			if !slices.Contains(r.reports.keys(), obj.Key) {
				return fmt.Errorf("%v was not reported", obj.Key)
			}
		}
		return nil
	})
}
