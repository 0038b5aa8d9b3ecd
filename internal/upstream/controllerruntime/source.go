package controllerruntime

import (
	"reflect"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Any type arguments will do: only the generic types matter.
var (
	kindSource    = reflect.TypeOf(source.Kind[client.Object](nil, nil, nil)).Elem()
	channelSource = reflect.TypeOf(source.Channel(make(chan event.GenericEvent), handler.EventHandler(nil))).Elem()
)

// IsChannel reports whether a source was made by source.Channel.
//
// Unnecessary once upstream exports the type that source.Channel returns.
func IsChannel(src source.Source) bool {
	v := reflect.ValueOf(src)
	return v.Kind() == reflect.Pointer && sameGeneric(v.Type().Elem(), channelSource)
}

// WithCache returns a copy of a source made by source.Kind, with wrap around its cache. Other sources are returned
// unchanged.
//
// Unnecessary once upstream exports the type that source.Kind returns; its field Cache already is exported.
func WithCache(src source.Source, wrap func(cache.Cache) cache.Cache) source.Source {
	given := reflect.ValueOf(src)
	if given.Kind() != reflect.Pointer || given.IsNil() || !sameGeneric(given.Type().Elem(), kindSource) {
		return src
	}
	wrapped := reflect.New(given.Type().Elem())
	wrapped.Elem().Set(given.Elem())
	field := wrapped.Elem().FieldByName("Cache")
	if !field.IsValid() || !field.CanSet() || field.Type() != reflect.TypeFor[cache.Cache]() || field.IsNil() {
		return src
	}
	field.Set(reflect.ValueOf(wrap(field.Interface().(cache.Cache))))
	return wrapped.Interface().(source.Source)
}

// sameGeneric reports whether two types are instances of the same generic type.
func sameGeneric(t, example reflect.Type) bool {
	name, _, generic := strings.Cut(t.Name(), "[")
	same, _, _ := strings.Cut(example.Name(), "[")
	return generic && name == same && t.PkgPath() == example.PkgPath()
}

// structOf follows interfaces and pointers to a struct. It returns the zero Value for nil and for other types.
func structOf(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v
}
