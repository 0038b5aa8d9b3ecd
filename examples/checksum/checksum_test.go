// Package checksum has the test of the example's files; the controller is in stock and sharded.
package checksum

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/rota-dev/rota/examples/internal/lines"
)

// TestTenLines: a controller of plain client-go becomes sharded in at most ten lines, and the README shows them. What
// goes is leader election.
func TestTenLines(t *testing.T) { lines.Few(t, 10, 17) }

// TestLines: the lines in docs/shard.md are those of sharded/main.go.
func TestLines(t *testing.T) {
	page, errPage := os.ReadFile("../../docs/shard.md")
	main, errMain := os.ReadFile("sharded/main.go")
	if err := errors.Join(errPage, errMain); err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## With client-go alone\n")
	_, section, _ = strings.Cut(section, "```go\n")
	code, _, _ := strings.Cut(section, "```")
	if code == "" {
		t.Fatal("docs/shard.md has no code below \"With client-go alone\"")
	}
	for line := range strings.Lines(code) {
		if !strings.Contains(string(main), "\t"+line) {
			t.Errorf("sharded/main.go has no line %q", line)
		}
	}
}
