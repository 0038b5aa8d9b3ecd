package ctrlrt

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kinds knows which kinds are sharded by their own keys, which by their owners', and which are used whole. A kind may be
// sharded in both ways at once, by different controllers; it is not sharded and whole in the manager's own cache.
type kinds struct {
	mu      sync.Mutex
	sharded map[schema.GroupKind]string // by which controller
	owned   map[schema.GroupKind]string // by the objects of which controller
	whole   map[schema.GroupKind]bool
	// refused gets the first refusal: a source that is refused its informer tries again until it times out, so the
	// manager has to end it.
	refused chan error
}

func newKinds() *kinds {
	return &kinds{
		sharded: map[schema.GroupKind]string{}, owned: map[schema.GroupKind]string{}, whole: map[schema.GroupKind]bool{},
		refused: make(chan error, 1),
	}
}

func (k *kinds) shard(kind schema.GroupKind, controller string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.whole[kind] {
		return bothError(kind, controller)
	}
	k.sharded[kind] = controller
	return nil
}

// own notes that a sharded controller owns objects of a kind, and returns whether that shards it: not where somebody needs
// all of its objects.
func (k *kinds) own(kind schema.GroupKind, controller string) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sharded[kind] == controller {
		return false, fmt.Errorf("controller %q owns objects of the kind that it is for, %s: a chain of owners would have to meet in one member; "+
			"use slot.KeyNamespace, and builder.MatchEveryOwner", controller, kind)
	}
	if k.whole[kind] {
		return false, nil
	}
	k.owned[kind] = controller
	return true, nil
}

// use notes that somebody needs all objects of a kind. early says that the manager has not started: then a kind that is
// only owned can still be kept whole, and the caller has to see to it (true).
func (k *kinds) use(kind schema.GroupKind, early bool) (disown bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if controller, ok := k.sharded[kind]; ok {
		return false, k.refuse(bothError(kind, controller))
	}
	controller, owned := k.owned[kind]
	if owned && !early {
		return false, k.refuse(fmt.Errorf("kind %s is owned by objects of the sharded controller %q, so this manager's cache holds a share of its objects, "+
			"but an unsharded controller, a webhook or an informer of the same manager needs all of them: call KeepWhole of the ctrlrt.Manager "+
			"with that kind before the manager starts", kind, controller))
	}
	delete(k.owned, kind)
	k.whole[kind] = true
	return owned, nil
}

// refuse ends the manager.
func (k *kinds) refuse(err error) error {
	select {
	case k.refused <- err:
	default:
	}
	return err
}

func (k *kinds) isSharded(kind schema.GroupKind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.sharded[kind]
	return ok
}

func (k *kinds) isOwned(kind schema.GroupKind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.owned[kind]
	return ok
}

// both returns the kinds that are sharded in both ways.
func (k *kinds) both() []schema.GroupKind {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []schema.GroupKind
	for kind := range k.sharded {
		if _, ok := k.owned[kind]; ok {
			out = append(out, kind)
		}
	}
	return out
}

func (k *kinds) isBoth(kind schema.GroupKind) bool { return k.isSharded(kind) && k.isOwned(kind) }

func bothError(kind schema.GroupKind, controller string) error {
	return fmt.Errorf("kind %s is sharded by controller %q, so this manager's cache holds a share of its objects, "+
		"but an unsharded controller, a webhook or an informer of the same manager needs all of them: build that controller "+
		"with ctrlrt.NewControllerManagedBy, too, or set it up with the manager that Whole of the ctrlrt.Manager returns, whose cache holds all objects", kind, controller)
}
