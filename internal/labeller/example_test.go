package labeller_test

import (
	"context"
	"fmt"
	"log"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/slot"
)

func ExampleValue() {
	fmt.Println(labeller.Value(slot.KeyName, "default", "web"))
	// Output: 1957
}

func Example() {
	run := func(ctx context.Context) error {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return err
		}
		l, err := labeller.New(cfg, labeller.Options{
			Resources: []schema.GroupVersionResource{{Group: "web.example.com", Version: "v1", Resource: "websites"}},
			Label:     "rota.dev/hash-website-b2c498", // sharding.HashLabel returns it
			Report:    func(err error) { log.Print(err) },
		})
		if err != nil {
			return err
		}
		return l.Run(ctx)
	}
	_ = run
}
