package rota

import (
	"errors"
	"fmt"
	"reflect"
)

// checkFactory returns an error if a factory that client-gen made narrows what its informers list, by WithNamespace or
// WithTweakListOptions, and the client is a generated one that does not. A factory tells nobody of its options, so they
// are read from its fields. Clients of another make are trusted to list what they should.
func checkFactory(factory, client any) error {
	of, generated := namespaceOf(client)
	fields := reflect.Indirect(reflect.ValueOf(factory))
	if !generated || fields.Kind() != reflect.Struct {
		return nil
	}
	if f := fields.FieldByName("tweakListOptions"); f.IsValid() && f.Kind() == reflect.Func && !f.IsNil() {
		return errors.New("its factory was made with WithTweakListOptions, which does not apply here, so that it would " +
			"list more: pass as client a value of your own whose List and Watch change the options and call the client's, or " +
			"take a factory without this option")
	}
	f := fields.FieldByName("namespace")
	if f.IsValid() && f.Kind() == reflect.String && f.String() != "" && f.String() != of {
		listed := fmt.Sprintf("lists namespace %s", of)
		if of == "" {
			listed = "lists all namespaces"
		}
		return fmt.Errorf("its factory was made with WithNamespace(%q), and the client %s: pass the client of that "+
			"namespace, or take a factory without this option", f.String(), listed)
	}
	return nil
}

// namespaceOf returns the namespace of a client that client-gen made; ok is false for others.
func namespaceOf(client any) (namespace string, ok bool) {
	switch c := client.(type) {
	case interface{ GetNamespace() string }:
		return c.GetNamespace(), true
	case interface{ Namespace() string }: // a fake
		return c.Namespace(), true
	}
	return "", false
}
