package ctrlrt

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kinds records which kinds are sharded by their own keys, which by their owners' keys, and which are needed whole. A
// kind may be sharded both ways by different controllers. The manager's cache holds either a share of a kind or all of
// its objects. A kind that is sharded by its own keys and also needed whole, because another sharded controller Watches
// it or because of KeepWhole, is also in the cache of Manager.Whole.
type kinds struct {
	mu      sync.Mutex
	sharded map[schema.GroupKind][]string // the controllers that are For the kind
	owned   map[schema.GroupKind]string   // the controller whose objects own it
	watched map[schema.GroupKind][]string // the sharded controllers that need all of it
	kept    map[schema.GroupKind]bool     // KeepWhole
	whole   map[schema.GroupKind]bool     // the manager's own cache gave out an informer of all objects
	// late are kinds of which the manager's cache holds a share although a running controller watches all objects. They
	// are also in the cache of Manager.Whole, even if they are sharded by their owners' keys only.
	late map[schema.GroupKind]bool
	// unsharded are the names of unsharded controllers and of runnables that need the leader, for messages.
	unsharded []string
	// refused gets the first refusal after the manager's start. The manager ends then.
	refused chan error
}

func newKinds() *kinds {
	return &kinds{
		sharded: map[schema.GroupKind][]string{}, owned: map[schema.GroupKind]string{},
		watched: map[schema.GroupKind][]string{},
		kept:    map[schema.GroupKind]bool{}, whole: map[schema.GroupKind]bool{}, late: map[schema.GroupKind]bool{},
		refused: make(chan error, 1),
	}
}

func (k *kinds) shard(kind schema.GroupKind, controller string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.whole[kind] {
		return fmt.Errorf("kind %s is to be sharded by controller %q, but this manager's cache has given out an informer of "+
			"all its objects: set up "+
			"that controller, and call KeepWhole of the ctrlrt.Manager with that kind, before; or take the informer from the "+
			"manager that Whole of the "+
			"ctrlrt.Manager returns, whose cache holds all objects", kind, controller)
	}
	if !slices.Contains(k.sharded[kind], controller) {
		k.sharded[kind] = append(k.sharded[kind], controller)
	}
	return nil
}

// own records that a sharded controller owns objects of a kind. It returns whether the kind is now sharded by its
// owners. It is not if all of its objects are needed.
func (k *kinds) own(kind schema.GroupKind, controller string) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	by, sharded := k.sharded[kind]
	if slices.Contains(by, controller) {
		return false, fmt.Errorf("controller %q owns objects of the kind that it is for, %s: a chain of owners would have "+
			"to meet in one member; "+
			"use slot.KeyNamespace, and builder.MatchEveryOwner", controller, kind)
	}
	if k.whole[kind] || !sharded && k.isNeeded(kind) {
		return false, nil
	}
	k.owned[kind] = controller
	return true, nil
}

// watch records that a sharded controller needs the events of all objects of a kind. If disown is true, the kind is no
// longer sharded by its owners, and the caller must call Share.Disown.
func (k *kinds) watch(kind schema.GroupKind, controller string) (disown bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.Contains(k.sharded[kind], controller) {
		return false, fmt.Errorf("controller %q Watches all objects of kind %s, which it is for and of which this manager's "+
			"cache holds a share: use "+
			"WatchesRawSource with source.Kind on the cache of the manager that Whole of the ctrlrt.Manager returns", controller,
			kind)
	}
	k.watched[kind] = append(k.watched[kind], controller)
	return k.disown(kind), nil
}

// keep records that all objects of a kind are needed. For disown see watch.
func (k *kinds) keep(kind schema.GroupKind) (disown bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept[kind] = true
	return k.disown(kind)
}

// disown ends the sharding of a kind by its owners, unless it is also sharded by its own keys: then the owned objects
// have a separate cache. k.mu is held.
func (k *kinds) disown(kind schema.GroupKind) bool {
	_, owned := k.owned[kind]
	if _, sharded := k.sharded[kind]; sharded || !owned {
		return false
	}
	delete(k.owned, kind)
	return true
}

// use records a request for an informer of all objects of a kind. fromWhole is true if it must come from the cache of
// Manager.Whole.
func (k *kinds) use(kind schema.GroupKind) (fromWhole bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	who := "an unsharded controller, a webhook or an informer of the same manager" + k.suspects()
	if err := k.shared(kind, who, adviceUnsharded); err != nil {
		return false, err
	}
	if _, sharded := k.sharded[kind]; sharded || k.late[kind] {
		return true, nil
	}
	k.whole[kind] = true
	return false, nil
}

// useLate records that a running controller watches all objects of a kind of which the manager's cache holds a share.
// It returns true the first time.
func (k *kinds) useLate(kind schema.GroupKind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.late[kind]
	k.late[kind] = true
	return !before
}

// named names controllers in a message.
func named(controllers []string) string {
	quoted := make([]string, len(controllers))
	for i, name := range controllers {
		quoted[i] = strconv.Quote(name)
	}
	if len(quoted) == 1 {
		return "controller " + quoted[0]
	}
	return "controllers " + strings.Join(quoted, ", ")
}

// suspects names the unsharded runnables, since GetInformer cannot identify its caller. k.mu is held.
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

// refuse makes the manager end with the error.
func (k *kinds) refuse(err error) error {
	select {
	case k.refused <- err:
	default:
	}
	return err
}

// isNeeded reports whether all objects of a kind are needed. k.mu is held.
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

// isFor reports whether the controller is For the kind.
func (k *kinds) isFor(kind schema.GroupKind, controller string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.sharded[kind], controller)
}

func (k *kinds) isKept(kind schema.GroupKind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept[kind]
}

// inWhole reports whether the manager's cache holds a share of a kind, and the cache of Manager.Whole all objects.
func (k *kinds) inWhole(kind schema.GroupKind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, sharded := k.sharded[kind]
	return k.late[kind] || sharded && k.isNeeded(kind)
}

// allInWhole returns the kinds for which inWhole is true.
func (k *kinds) allInWhole() []schema.GroupKind {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []schema.GroupKind
	for kind := range k.sharded {
		if k.isNeeded(kind) && !k.late[kind] {
			out = append(out, kind)
		}
	}
	out = slices.AppendSeq(out, maps.Keys(k.late))
	slices.SortFunc(out, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// both returns the kinds that are sharded by their own keys and by their owners.
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
