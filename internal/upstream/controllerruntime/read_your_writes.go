package controllerruntime

import (
	"fmt"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Fields that exist since controller-runtime v0.25. Unnecessary once that is the lowest supported version.
const (
	enableReadYourWrites  = "EnableReadYourWritesConsistency"  // of client.CacheOptions
	disableReadYourWrites = "DisableReadYourWritesConsistency" // of the options of client calls
)

// ReadsOwnWrites reports whether the options make reads of the client wait for its writes. It returns an error if the
// field has a type that this version of Rota does not support.
func ReadsOwnWrites(o *client.CacheOptions) (bool, error) {
	if o == nil {
		return false, nil
	}
	field := reflect.ValueOf(*o).FieldByName(enableReadYourWrites)
	if !field.IsValid() || field.IsZero() {
		return false, nil
	}
	enabled, ok := field.Interface().(*bool)
	if !ok {
		return false, fmt.Errorf("ctrlrt: Options.Client.Cache.%s is a %s here, but this version of Rota knows it as a "+
			"*bool: leave it out, or use controller-runtime v0.25", enableReadYourWrites, field.Type())
	}
	return *enabled, nil
}

// SkipsOwnWrites reports whether the options of a client call, given as a pointer, opt out of waiting for writes.
func SkipsOwnWrites(options any) bool {
	field := reflect.ValueOf(options).Elem().FieldByName(disableReadYourWrites)
	return field.Kind() == reflect.Bool && field.Bool()
}

// SkipOwnWrites makes the options of a client call, given as a pointer, opt out of waiting for writes.
func SkipOwnWrites(options any) {
	if field := reflect.ValueOf(options).Elem().FieldByName(disableReadYourWrites); field.Kind() == reflect.Bool {
		field.SetBool(true)
	}
}
