package ctrlrt_test

import (
	"testing"

	"github.com/rota-dev/rota/internal/elapsed"
	"github.com/rota-dev/rota/test/controlplane"
)

func TestMain(m *testing.M) {
	elapsed.Simulated() // some tests have simulated time
	controlplane.Parallel(4)
	controlplane.Main(m, controlplane.Options{})
}
