package controllerruntime

import (
	"reflect"
	"testing"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Before v0.25 no options have the fields. Since then all of these have them, with these types.
func TestReadYourWrites(t *testing.T) {
	cached := reflect.TypeFor[client.CacheOptions]()
	enable, supported := cached.FieldByName(enableReadYourWrites)
	if supported && enable.Type != reflect.TypeFor[*bool]() {
		t.Errorf("%s is a %s, want *bool", enableReadYourWrites, enable.Type)
	}
	for _, enabled := range []*bool{nil, ptr.To(false), ptr.To(true)} {
		o := &client.CacheOptions{}
		if supported {
			reflect.ValueOf(o).Elem().FieldByIndex(enable.Index).Set(reflect.ValueOf(enabled))
		}
		got, err := ReadsOwnWrites(o)
		if want := supported && ptr.Deref(enabled, false); got != want || err != nil {
			t.Errorf("reads wait for writes: %t, %v, want %t", got, err, want)
		}
	}
	if got, err := ReadsOwnWrites(nil); got || err != nil {
		t.Errorf("without options reads wait for writes: %t, %v", got, err)
	}
	for _, options := range []any{
		&client.GetOptions{}, &client.ListOptions{}, &client.CreateOptions{}, &client.UpdateOptions{},
		&client.PatchOptions{}, &client.ApplyOptions{}, &client.DeleteOptions{},
		&client.SubResourceUpdateOptions{}, &client.SubResourcePatchOptions{},
	} {
		if SkipsOwnWrites(options) {
			t.Errorf("an empty %T skips own writes", options)
		}
		SkipOwnWrites(options)
		if got := SkipsOwnWrites(options); got != supported {
			t.Errorf("%T skips own writes after SkipOwnWrites: %t, want %t", options, got, supported)
		}
	}
}
