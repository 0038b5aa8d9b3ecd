package ctrlrt_test

import (
	"testing"

	"github.com/rota-dev/rota/internal/controlplane"
)

func TestMain(m *testing.M) {
	controlplane.Parallel(4)
	controlplane.Main(m, controlplane.Options{})
}
