package ctrlrt

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kinds knows which kinds are sharded by their own keys, which by their owners', and of which all objects are needed. A
// kind may be sharded in both ways at once, by different controllers. The manager's own cache holds a share of a kind
// or all of it. A kind that is sharded by its own keys and needed whole, by another sharded controller that Watches it
// or because of KeepWhole, is in the cache of Manager.Whole besides.
type kinds struct {
	mu      sync.Mutex
	sharded map[schema.GroupKind]string   // by which controller
	owned   map[schema.GroupKind]string   // by the objects of which controller
	watched map[schema.GroupKind][]string // by which sharded controllers
	kept    map[schema.GroupKind]bool     // KeepWhole
	whole   map[schema.GroupKind]bool     // the manager's own cache gave out an informer that holds all
	// unsharded are the names of what runs on the leader only, for messages.
	unsharded []string
	// refused gets the first refusal: a source that is refused its informer tries again until it times out, so the
	// manager has to end it.
	refused chan error
}

func newKinds() *kinds {
	return &kinds{
		sharded: map[schema.GroupKind]string{}, owned: map[schema.GroupKind]string{}, watched: map[schema.GroupKind][]string{},
		kept: map[schema.GroupKind]bool{}, whole: map[schema.GroupKind]bool{}, refused: make(chan error, 1),
	}
}

func (k *kinds) shard(kind schema.GroupKind, controller string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.whole[kind] {
		return fmt.Errorf("kind %s is to be sharded by controller %q, but this manager's cache has given out an informer of all its objects: set up "+
			"that controller, and call KeepWhole of the ctrlrt.Manager with that kind, before; or take the informer from the manager that Whole of the "+
			"ctrlrt.Manager returns, whose cache holds all objects", kind, controller)
	}
	k.sharded[kind] = controller
	return nil
}

// own notes that a sharded controller owns objects of a kind, and returns whether that shards it: not where somebody
// needs all of its objects.
func (k *kinds) own(kind schema.GroupKind, controller string) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	by, sharded := k.sharded[kind]
	if sharded && by == controller {
		return false, fmt.Errorf("controller %q owns objects of the kind that it is for, %s: a chain of owners would have to meet in one member; "+
			"use slot.KeyNamespace, and builder.MatchEveryOwner", controller, kind)
	}
	if k.whole[kind] || !sharded && k.isNeeded(kind) {
		return false, nil
	}
	k.owned[kind] = controller
	return true, nil
}

// watch notes that a sharded controller needs the events of all objects of a kind. disown says that the kind is not
// sharded by its owners any more, which the caller has to see to.
func (k *kinds) watch(kind schema.GroupKind, controller string) (disown bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sharded[kind] == controller {
		return false, fmt.Errorf("controller %q Watches all objects of kind %s, which it is for and of which this manager's cache holds a share: use "+
			"WatchesRawSource with source.Kind on the cache of the manager that Whole of the ctrlrt.Manager returns", controller, kind)
	}
	k.watched[kind] = append(k.watched[kind], controller)
	return k.disown(kind), nil
}

// keep notes that all objects of a kind are needed. For disown see watch.
func (k *kinds) keep(kind schema.GroupKind) (disown bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept[kind] = true
	return k.disown(kind)
}

// disown ends the sharding of a kind by its owners, except where it is sharded by its own keys, too: then it is in a
// cache of its own. k.mu is held.
func (k *kinds) disown(kind schema.GroupKind) bool {
	_, owned := k.owned[kind]
	if _, sharded := k.sharded[kind]; sharded || !owned {
		return false
	}
	delete(k.owned, kind)
	return true
}

// use notes that somebody gets an informer of all objects of a kind. It returns whether that has to come from the cache
// of Manager.Whole.
func (k *kinds) use(kind schema.GroupKind) (fromWhole bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if controller, ok := k.sharded[kind]; ok {
		if k.isNeeded(kind) {
			return true, nil
		}
		return false, k.refuse(fmt.Errorf("kind %s is sharded by controller %q, so this manager's cache holds a share of its objects, "+
			"but an unsharded controller, a webhook or an informer of the same manager%s needs all of them: call KeepWhole of the ctrlrt.Manager "+
			"with that kind before the manager starts; or build that controller with ctrlrt.NewControllerManagedBy, too; or set it up with the manager "+
			"that Whole of the ctrlrt.Manager returns, whose cache holds all objects", kind, controller, k.suspects()))
	}
	if controller, ok := k.owned[kind]; ok {
		return false, k.refuse(fmt.Errorf("kind %s is owned by objects of the sharded controller %q, so this manager's cache holds a share of its objects, "+
			"but an unsharded controller, a webhook or an informer of the same manager%s needs all of them: call KeepWhole of the ctrlrt.Manager "+
			"with that kind before the manager starts", kind, controller, k.suspects()))
	}
	k.whole[kind] = true
	return false, nil
}

// suspects names what is not sharded: whoever asks for an informer does not say who it is. k.mu is held.
func (k *kinds) suspects() string {
	if len(k.unsharded) == 0 {
		return ""
	}
	return fmt.Sprintf(" (not sharded here: %s)", strings.Join(k.unsharded, ", "))
}

func (k *kinds) addUnsharded(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unsharded = append(k.unsharded, name)
}

// refuse ends the manager.
func (k *kinds) refuse(err error) error {
	select {
	case k.refused <- err:
	default:
	}
	return err
}

// isNeeded says that all objects of a kind are needed. k.mu is held.
func (k *kinds) isNeeded(kind schema.GroupKind) bool { return k.kept[kind] || len(k.watched[kind]) > 0 }

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

// isFor says that a controller is the one that a sharded kind is for.
func (k *kinds) isFor(kind schema.GroupKind, controller string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	by, ok := k.sharded[kind]
	return ok && by == controller
}

func (k *kinds) isKept(kind schema.GroupKind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept[kind]
}

// inWhole says that a kind is sharded by its own keys, and in the cache of Manager.Whole besides.
func (k *kinds) inWhole(kind schema.GroupKind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, sharded := k.sharded[kind]
	return sharded && k.isNeeded(kind)
}

// allInWhole returns the kinds for which inWhole is true.
func (k *kinds) allInWhole() []schema.GroupKind {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []schema.GroupKind
	for kind := range k.sharded {
		if k.isNeeded(kind) {
			out = append(out, kind)
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return out
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
