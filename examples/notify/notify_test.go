// Package notify has the test of the example's files; the controller is in stock and sharded.
package notify

import (
	"testing"

	"github.com/rota-dev/rota/examples/internal/lines"
)

// TestTenLines: the README shows the lines that shard the notifier. What goes is leader election.
func TestTenLines(t *testing.T) { lines.Few(t, 10, 20) }
