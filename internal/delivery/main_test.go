package delivery_test

import (
	"testing"

	"github.com/rota-dev/rota/test/controlplane"
)

func TestMain(m *testing.M) {
	controlplane.Parallel(20) // those in memory wait for backoffs; apiserver_test.go has fewer of its own
	controlplane.Main(m, controlplane.Options{})
}
