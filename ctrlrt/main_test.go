package ctrlrt_test

import (
	"testing"

	"github.com/rota-dev/rota/internal/controlplane"
	"github.com/rota-dev/rota/internal/elapsed"
)

func TestMain(m *testing.M) {
	elapsed.Simulated() // some tests have simulated time
	controlplane.Parallel(4)
	controlplane.Main(m, controlplane.Options{})
}
