package fence_test

import (
	"flag"
	"os"
	"testing"

	"github.com/rota-dev/rota/test/controlplane"
)

// The controller manager collects garbage, and writes what the API server's type check says into policies. What runs
// under -short does without it, so that `make test` need not build it.
func TestMain(m *testing.M) {
	if os.Getenv(memberEnv) != "" {
		memberMain()
		return
	}
	flag.Parse()
	controlplane.Main(m, controlplane.Options{ControllerManager: !testing.Short()})
}
