package ctrlrt

import (
	"errors"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// readYourWrites is the name of an option that controller-runtime has since v0.25.
const readYourWrites = "EnableReadYourWritesConsistency"

// refuseReadYourWrites refuses that option: reads would wait until the cache shows what this member wrote, and it never
// shows objects of other members.
func refuseReadYourWrites(o *client.CacheOptions) error {
	if o == nil {
		return nil
	}
	field := reflect.ValueOf(*o).FieldByName(readYourWrites)
	if !field.IsValid() {
		return nil // controller-runtime does not have it
	}
	if enabled, ok := field.Interface().(*bool); !ok || enabled == nil || !*enabled {
		return nil
	}
	return errors.New("ctrlrt: Options.Client.Cache." + readYourWrites + " is set, but a member of a rota caches its " +
		"share only, so that a read after a write to an object of another member would wait for ever: leave it out. A " +
		"reconcile begins when the cache shows what this member last wrote to its object, or 100 ms later; for a read " +
		"that must show an earlier write use the option ctrlrt.Live")
}
