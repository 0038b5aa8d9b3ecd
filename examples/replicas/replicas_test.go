// Package replicas has the test of the example's files; the controller is in stock and sharded.
package replicas

import (
	"testing"

	"github.com/rota-dev/rota/examples/internal/lines"
)

// TestLines: what a controller with children, adoption and expectations takes, and the README shows it.
func TestLines(t *testing.T) { lines.Few(t, 17, 17) }
