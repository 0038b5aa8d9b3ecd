package rotatest_test

import (
	"os"
	"testing"

	"github.com/rota-dev/rota/test/controlplane"
)

// The example is what it says: its operator survives. It is in a file of its own, which its page shows.
func TestExample(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip("only with SLOW=1: make check WHAT=slow")
	}
	runGreeter(t, controlplane.For(t).Config())
}
