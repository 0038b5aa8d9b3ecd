package fence_test

import (
	"testing"

	"github.com/rota-dev/rota/internal/controlplane"
)

// The controller manager collects garbage, and writes what the API server's type check says into policies.
func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Options{ControllerManager: true})
}
