package fence_test

import (
	"os"
	"testing"

	"github.com/rota-dev/rota/test/controlplane"
)

// The controller manager collects garbage, and writes what the API server's type check says into policies.
func TestMain(m *testing.M) {
	if os.Getenv(memberEnv) != "" {
		memberMain()
		return
	}
	controlplane.Main(m, controlplane.Options{ControllerManager: true})
}
