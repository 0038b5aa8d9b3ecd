package labeller_test

import (
	"testing"

	"github.com/rota-dev/rota/internal/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}) }
