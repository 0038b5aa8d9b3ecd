package ctrlrt

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rota-dev/rota/internal/upstream/controllerruntime"
)

// declared are the controllers that were added before the manager starts. Their sources are checked at the start of
// every replica. Otherwise a controller that needs the leader would be refused only on the leader. A rollout would
// succeed on the replicas that wait, and each of them would exit when it becomes the leader.
type declared struct {
	mu          sync.Mutex
	controllers []declaredController
	started     bool
}

type declaredController struct {
	manager.Runnable
	name, advice string
}

const (
	adviceUnsharded = "build it with ctrlrt.NewDutyControllerManagedBy, so that one member at a time runs it; or shard " +
		"it with ctrlrt.NewControllerManagedBy; or build it with the manager that Whole of the ctrlrt.Manager returns, " +
		"whose cache holds all objects"
	adviceSource = "use Watches of its builder; or give the source the cache of the manager that Whole of the " +
		"ctrlrt.Manager returns, which holds all objects"
)

// add records a controller. Controllers that are added after the start have no sources yet; see wholeCache.from.
func (d *declared) add(r manager.Runnable, name, advice string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.started {
		d.controllers = append(d.controllers, declaredController{r, name, advice})
	}
}

// start returns an error for controllers whose sources need all objects of a kind of which the manager's cache holds a
// share.
func (d *declared) start(m *Manager) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.started = true
	var errs []error
	for _, c := range d.controllers {
		for _, kind := range wholeKinds(c.Runnable, m) {
			if err := m.kinds.refusal(kind, c.name, c.advice); err != nil {
				errs = append(errs, err)
			}
		}
	}
	d.controllers = nil
	return errors.Join(errs...)
}

// wholeKinds returns the kinds of a controller's sources that read from the manager's cache. Sources that are not found
// here get their informers when they start; see wholeCache.from.
func wholeKinds(controller manager.Runnable, m *Manager) []schema.GroupKind {
	var out []schema.GroupKind
	for _, src := range controllerruntime.KindSources(controller) {
		if !src.ReadsFrom(m.cache, reflect.TypeFor[notingCache](), reflect.TypeFor[recordingCache]()) {
			continue
		}
		if kind, ok := src.Kind(m.GetScheme()); ok {
			out = append(out, kind)
		}
	}
	return out
}

// refusal returns an error if a controller needs all objects of a kind of which the manager's cache holds a share.
func (k *kinds) refusal(kind schema.GroupKind, who, advice string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.shared(kind, who, advice)
}

// shared is refusal for callers that hold k.mu.
func (k *kinds) shared(kind schema.GroupKind, who, advice string) error {
	by, sharded := k.sharded[kind]
	owner, owned := k.owned[kind]
	how := "sharded by " + named(by)
	switch {
	case k.late[kind], sharded && k.isNeeded(kind), !sharded && !owned:
		return nil
	case !sharded:
		how = fmt.Sprintf("owned by objects of the sharded controller %q", owner)
	}
	return fmt.Errorf("kind %s is %s, so this manager's cache holds a share of its objects, but %s needs all of them: "+
		"%s; or call KeepWhole of the ctrlrt.Manager with that kind before the manager starts", kind, how, who, advice)
}
