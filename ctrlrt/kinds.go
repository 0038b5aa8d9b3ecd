package ctrlrt

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kinds knows which kinds are sharded and which are used whole: no kind can be both in one manager.
type kinds struct {
	mu      sync.Mutex
	sharded map[schema.GroupKind]string // by which controller
	whole   map[schema.GroupKind]bool
	// refused gets the first refusal: a source that is refused its informer tries again until it times out, so the
	// manager has to end it.
	refused chan error
}

func newKinds() *kinds {
	return &kinds{sharded: map[schema.GroupKind]string{}, whole: map[schema.GroupKind]bool{}, refused: make(chan error, 1)}
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

// use notes that somebody needs all objects of a kind.
func (k *kinds) use(kind schema.GroupKind) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if controller, ok := k.sharded[kind]; ok {
		err := bothError(kind, controller)
		select {
		case k.refused <- err:
		default:
		}
		return err
	}
	k.whole[kind] = true
	return nil
}

func (k *kinds) isSharded(kind schema.GroupKind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.sharded[kind]
	return ok
}

func bothError(kind schema.GroupKind, controller string) error {
	return fmt.Errorf("kind %s is sharded by controller %q, so this manager's cache holds a share of its objects, "+
		"but an unsharded controller, a webhook or an informer of the same manager needs all of them: build that controller "+
		"with ctrlrt.NewControllerManagedBy, too, or give it a full cache of its own (cluster.New, added with mgr.Add)", kind, controller)
}
