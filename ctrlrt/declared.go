package ctrlrt

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// declared are the controllers that were added before the manager starts. What their sources need is checked at the
// start of every replica. A controller that needs the leader would otherwise be refused where it is elected only, so
// that a rollout passes the replicas that wait, and each of them ends at its takeover.
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

// add notes a controller. Later ones have no sources yet when they are added; see wholeCache.from.
func (d *declared) add(r manager.Runnable, name, advice string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.started {
		d.controllers = append(d.controllers, declaredController{r, name, advice})
	}
}

// start refuses controllers with sources of the manager's cache that need all objects of a kind of which it holds a
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

// wholeKinds returns the kinds of a controller's sources that are of the manager's cache. controller-runtime keeps the
// sources to itself until it starts them, so they are looked at by reflection, without calls and without changes. Those
// that are not found so get their informers when they start; see wholeCache.from.
func wholeKinds(controller manager.Runnable, m *Manager) []schema.GroupKind {
	v := structOf(reflect.ValueOf(controller))
	if !v.IsValid() {
		return nil
	}
	sources := v.FieldByName("startWatches")
	if !sources.IsValid() || sources.Kind() != reflect.Slice {
		return nil
	}
	var out []schema.GroupKind
	for i := range sources.Len() {
		if kind, ok := wholeKind(structOf(sources.Index(i)), m); ok {
			out = append(out, kind)
		}
	}
	return out
}

// wholeKind returns the kind of a source.Kind of the manager's cache.
func wholeKind(src reflect.Value, m *Manager) (schema.GroupKind, bool) {
	for src.IsValid() && !isKindSource(src.Type()) { // within rawSource, restartable
		src = structOf(src.FieldByName("Source"))
	}
	if !src.IsValid() || !isOutside(structOf(src.FieldByName("Cache")), m) {
		return schema.GroupKind{}, false
	}
	return kindOf(src.FieldByName("Type"), m)
}

// isKindSource recognizes source.Kind: controller-runtime does not export its type.
func isKindSource(t reflect.Type) bool {
	return strings.HasPrefix(t.PkgPath(), "sigs.k8s.io/controller-runtime/") && strings.HasPrefix(t.Name(), "Kind[")
}

// isOutside reports whether a cache is the one that GetCache of the manager returns.
func isOutside(c reflect.Value, m *Manager) bool {
	for c.IsValid() {
		switch c.Type() {
		case reflect.TypeFor[wholeCache]():
			return c.FieldByName("mgr").Pointer() == reflect.ValueOf(m).Pointer()
		case reflect.TypeFor[notingCache](), reflect.TypeFor[recordingCache]():
			c = structOf(c.FieldByName("Cache"))
		default:
			return false
		}
	}
	return false
}

// kindOf returns the kind of a value of client.Object that may have been read from a field that is not exported.
func kindOf(object reflect.Value, m *Manager) (schema.GroupKind, bool) {
	v := structOf(object)
	if !v.IsValid() || !v.CanAddr() {
		return schema.GroupKind{}, false
	}
	switch v.Type() {
	case reflect.TypeFor[unstructured.Unstructured]():
		fields := v.FieldByName("Object")
		text := func(key string) string {
			value := fields.MapIndex(reflect.ValueOf(key))
			if !value.IsValid() || value.Elem().Kind() != reflect.String {
				return ""
			}
			return value.Elem().String()
		}
		gvk := schema.FromAPIVersionAndKind(text("apiVersion"), text("kind"))
		return gvk.GroupKind(), gvk.Kind != ""
	case reflect.TypeFor[metav1.PartialObjectMetadata]():
		gvk := schema.FromAPIVersionAndKind(v.FieldByName("APIVersion").String(), v.FieldByName("Kind").String())
		return gvk.GroupKind(), gvk.Kind != ""
	}
	blank, ok := reflect.New(v.Type()).Interface().(client.Object)
	if !ok {
		return schema.GroupKind{}, false
	}
	gvk, err := apiutil.GVKForObject(blank, m.GetScheme())
	return gvk.GroupKind(), err == nil
}

// structOf follows interfaces and pointers to a struct. It returns the zero Value for nil, and for anything else.
func structOf(v reflect.Value) reflect.Value {
	for v.IsValid() && (v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer) {
		v = v.Elem()
	}
	if !v.IsValid() || v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v
}

// refusal says that a controller needs all objects of a kind of which the manager's cache holds a share, or nil.
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
