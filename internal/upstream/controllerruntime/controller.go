package controllerruntime

import (
	"reflect"
	"slices"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// IsController reports whether a runnable is a controller, which it recognizes by its methods.
//
// Unnecessary once upstream exports an interface that all its controllers implement, whatever their request type.
func IsController(r manager.Runnable) bool {
	_, ok := r.(interface{ GetLogger() logr.Logger })
	return ok
}

// ControllerName returns the name of a controller.
//
// Unnecessary once the interface controller.TypedController has a method for the field Name of
// pkg/internal/controller.Controller.
func ControllerName(r manager.Runnable) (name string, ok bool) {
	v := structOf(reflect.ValueOf(r))
	if !IsController(r) || !v.IsValid() {
		return "", false
	}
	field := v.FieldByName("Name")
	if field.Kind() != reflect.String {
		return "", false
	}
	return field.String(), true
}

// KindSource is a source made by source.Kind. It was read from a private field, so reflection can look at it but not
// call it.
type KindSource struct{ fields reflect.Value }

// KindSources returns the sources of a controller that has not started yet which source.Kind has made. It looks into
// sources that embed another one as their field Source.
//
// Unnecessary once upstream exports the field startWatches of pkg/internal/controller.Controller.
func KindSources(controller manager.Runnable) []KindSource {
	v := structOf(reflect.ValueOf(controller))
	if !v.IsValid() {
		return nil
	}
	sources := v.FieldByName("startWatches")
	if sources.Kind() != reflect.Slice {
		return nil
	}
	var out []KindSource
	for i := range sources.Len() {
		src := structOf(sources.Index(i))
		for src.IsValid() && !sameGeneric(src.Type(), kindSource) {
			src = structOf(src.FieldByName("Source"))
		}
		if src.IsValid() {
			out = append(out, KindSource{src})
		}
	}
	return out
}

// ReadsFrom reports whether the source gets its informer from a cache, given as a pointer. It looks into wrappers:
// struct types that embed another cache as their field Cache.
func (s KindSource) ReadsFrom(c cache.Cache, wrappers ...reflect.Type) bool {
	want := reflect.ValueOf(c)
	for v := s.fields.FieldByName("Cache"); v.IsValid(); {
		for v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		if v.Kind() == reflect.Pointer && v.Type() == want.Type() {
			return v.Pointer() == want.Pointer()
		}
		if v = structOf(v); !v.IsValid() || !slices.Contains(wrappers, v.Type()) {
			return false
		}
		v = v.FieldByName("Cache")
	}
	return false
}

// Kind returns the kind of the source's objects.
func (s KindSource) Kind(scheme *runtime.Scheme) (kind schema.GroupKind, ok bool) {
	v := structOf(s.fields.FieldByName("Type"))
	if !v.IsValid() || !v.CanAddr() {
		return schema.GroupKind{}, false
	}
	switch v.Type() {
	case reflect.TypeFor[unstructured.Unstructured]():
		object := v.FieldByName("Object")
		text := func(key string) string {
			value := object.MapIndex(reflect.ValueOf(key))
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
	gvk, err := apiutil.GVKForObject(blank, scheme)
	return gvk.GroupKind(), err == nil
}
