package ctrlrt

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kinds knows which kinds are sharded by their own keys, which by their owners', and which are used whole: a kind is
// one of them in a manager.
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
	if owner, ok := k.owned[kind]; ok {
		return fmt.Errorf("kind %s cannot be sharded by controller %q: controller %q owns objects of it, which are where their owners are; "+
			"run the two in managers of their own, each with a rota of its own", kind, controller, owner)
	}
	k.sharded[kind] = controller
	return nil
}

// own notes that a sharded controller owns objects of a kind, and returns whether that shards it: not where somebody needs
// all of its objects.
func (k *kinds) own(kind schema.GroupKind, controller string) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if owner, ok := k.sharded[kind]; ok {
		return false, fmt.Errorf("kind %s is sharded by controller %q by its own keys, so its objects are not where those of controller %q "+
			"are, which owns some: run the two in managers of their own, each with a rota of its own", kind, owner, controller)
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

func bothError(kind schema.GroupKind, controller string) error {
	return fmt.Errorf("kind %s is sharded by controller %q, so this manager's cache holds a share of its objects, "+
		"but an unsharded controller, a webhook or an informer of the same manager needs all of them: build that controller "+
		"with ctrlrt.NewControllerManagedBy, too, or give it a full cache of its own (cluster.New, added with mgr.Add)", kind, controller)
}
