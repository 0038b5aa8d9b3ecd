package labeller_test

import (
	"testing"

	"github.com/rota-dev/rota/test/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}) }
