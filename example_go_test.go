package rota_test

import (
	"context"
	"log"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota"
)

// A sync function that went through Queue.Admit, or a reconciler of ctrlrt, which starts a probe of each object.
func ExampleGo() {
	var probes sync.Map
	_ = func(ctx context.Context, name cache.ObjectName) error {
		if _, runs := probes.LoadOrStore(name, true); runs {
			return nil
		}
		err := rota.Go(ctx, func(ctx context.Context) {
			defer probes.Delete(name)
			for ctx.Err() == nil { // until the object moves, or was deleted
				log.Println("probing", name)
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
			}
		})
		if err != nil { // ctx is not that of a reconcile
			probes.Delete(name)
		}
		return err
	}
}
