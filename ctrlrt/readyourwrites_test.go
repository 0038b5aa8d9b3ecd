package ctrlrt_test

import (
	"reflect"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
)

// controller-runtime itself would say that a cache does not implement something, and not name Rota.
func TestReadYourWritesConsistencyIsRefused(t *testing.T) {
	cfg := &rest.Config{Host: "https://127.0.0.1:1"}
	for _, enabled := range []bool{true, false} {
		given := &client.CacheOptions{}
		field := reflect.ValueOf(given).Elem().FieldByName("EnableReadYourWritesConsistency")
		if !field.IsValid() {
			t.Skip("controller-runtime has the option since v0.25: make test-latest tests with that")
		}
		field.Set(reflect.ValueOf(ptr.To(enabled)))
		r, err := rota.New(cfg, rota.Options{Name: "consistent", Namespace: "operators", Identity: rota.Identity{Pod: "p"}})
		if err != nil {
			t.Fatal(err)
		}
		o := managerOptions()
		o.Client.Cache = given
		_, err = ctrlrt.NewManager(cfg, r, o)
		if enabled {
			wantError(t, err, "EnableReadYourWritesConsistency", "rota", "leave it out", "ctrlrt.Live")
		} else if err != nil {
			t.Errorf("the option is off: %v", err)
		}
	}
}
