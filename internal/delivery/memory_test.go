package delivery_test

import (
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/deliverytest"
)

func TestMemory(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent()) // the shared control plane may be running
	t.Run("Kinds", memoryKinds)                        // which returns when its parallel tests have ended
}

func memoryKinds(t *testing.T) {
	for _, c := range []struct {
		name   string
		kind   sharding.Mode
		ignore func() func() bool // of each server
		lists  []bool             // settings of WatchList; nil: all
	}{
		{"Filter", sharding.Filter, nil, nil},
		{"SlotLabel", sharding.SlotLabel, nil, nil},
		{"ShardSelector", sharding.ShardSelector, nil, nil},
		{"ShardSelectorIgnored", sharding.ShardSelector, func() func() bool { return func() bool { return true } }, []bool{true}},
		// Of two API servers one has the feature gate.
		{"ShardSelectorFlips", sharding.ShardSelector, func() func() bool {
			var calls atomic.Int64
			return func() bool { return calls.Add(1)%2 == 0 }
		}, []bool{false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // they wait for backoffs most of the time
			deliverytest.Run(t, deliverytest.Options{
				Delivery: c.kind, Ignores: c.ignore != nil, WatchList: c.lists,
				Kind: func(*testing.T) deliverytest.Kind {
					m := deliverytest.NewMemory()
					m.WatchList = true
					if c.ignore != nil {
						m.Sharding.Ignore(c.ignore())
					}
					return deliverytest.OfMemory(m)
				},
			})
		})
	}
}
