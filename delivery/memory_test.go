package delivery_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/rota-dev/rota/delivery/deliverytest"
)

func TestMemory(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent()) // the shared control plane may be running
	deliverytest.Run(t, deliverytest.Options{Kind: func(*testing.T) deliverytest.Kind {
		m := deliverytest.NewMemory()
		m.WatchList = true
		return deliverytest.OfMemory(m)
	}})
}
