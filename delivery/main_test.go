package delivery_test

import (
	"testing"

	"github.com/rota-dev/rota/internal/controlplane"
)

func TestMain(m *testing.M) {
	controlplane.Parallel(12)
	controlplane.Main(m, controlplane.Options{})
}
