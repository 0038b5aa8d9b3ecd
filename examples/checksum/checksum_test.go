// Package checksum has the test of the example's files; the controller is in stock and sharded.
package checksum

import (
	"testing"

	"github.com/rota-dev/rota/examples/internal/lines"
)

// TestTenLines: a controller of plain client-go becomes sharded in at most ten lines, and the README shows them. What
// goes is leader election.
func TestTenLines(t *testing.T) { lines.Few(t, 10, 17) }
