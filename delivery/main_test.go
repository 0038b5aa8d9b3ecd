package delivery_test

import (
	"flag"
	"testing"

	"github.com/rota-dev/rota/internal/controlplane"
)

func TestMain(m *testing.M) {
	// The suites wait for the reflector's back-offs most of the time: few at once would leave a small machine idle.
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p != nil && p.Value.String() == p.DefValue {
		_ = flag.Set("test.parallel", "24")
	}
	controlplane.Main(m, controlplane.Options{})
}
