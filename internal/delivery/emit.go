package delivery

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/delivery/stream"
)

// emit sends what the stream decided. It returns false if the reflector has stopped reading.
func (p *pump) emit(outs []stream.Out) bool {
	for _, out := range outs {
		obj := out.Object.Body.(runtime.Object)
		if out.Kept || out.At != "" {
			obj = obj.DeepCopyObject() // a transform may change the object that is sent
		}
		if about, err := meta.Accessor(obj); err == nil && out.At != "" {
			about.SetResourceVersion(out.At)
		}
		sent := true
		switch out.Action {
		case stream.Put:
			sent = p.send(watch.Event{Type: watch.EventType(out.Type.String()), Object: obj})
		case stream.Remove:
			sent = p.send(watch.Event{Type: watch.Deleted, Object: obj})
		case stream.Leave:
			last := obj.DeepCopyObject() // each event is transformed separately
			sent = p.send(watch.Event{Type: watch.Modified, Object: obj}) &&
				p.send(watch.Event{Type: watch.Deleted, Object: last})
		case stream.ActionUnknown:
		}
		if !sent {
			return false
		}
	}
	return true
}

// heed acts on the rest of a verdict: on new doubts and missed deletions.
func (s *source) heed(v stream.Verdict) {
	if v.Doubted {
		s.suspect()
	}
	for _, o := range v.Missed {
		s.inf.missLate(o)
	}
}

// missLate records a deletion for a slot that is not open. The store does not show the deletion, since a namesake has
// replaced the object.
func (i *informer) missLate(o stream.Object) {
	if i.share.open.Load().Has(o.Slot) {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.miss(o.Slot, sharding.Subject{Kind: i.kind, Name: types.NamespacedName(o.Name)})
}

// copyOwners copies the owner references of an object of an owned kind to the mark that replaces it: the owner has to
// hear of the deletion.
func (i *informer) copyOwners(mark runtime.Object, key string) {
	if !i.role.Owned() {
		return
	}
	old, exists, err := i.GetIndexer().GetByKey(key)
	if err != nil || !exists {
		return
	}
	from, fromErr := meta.Accessor(old)
	to, toErr := meta.Accessor(mark)
	if fromErr == nil && toErr == nil {
		to.SetOwnerReferences(from.GetOwnerReferences())
	}
}

// typeOf converts the type of a watch event about an object.
func typeOf(t watch.EventType) stream.Type {
	switch t {
	case watch.Added:
		return stream.Added
	case watch.Deleted:
		return stream.Deleted
	default:
		return stream.Modified
	}
}
