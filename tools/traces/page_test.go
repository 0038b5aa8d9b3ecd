package traces

import (
	"os"
	"strings"
	"testing"
)

// TestPage: docs/operations.md shows the code as it is here.
func TestPage(t *testing.T) {
	code, err := os.ReadFile("otlp.go")
	check(t, err)
	page, err := os.ReadFile("../../docs/operations.md")
	check(t, err)
	at := strings.Index(string(code), "// Run works")
	if at < 0 || !strings.Contains(string(page), "\n```go\n"+string(code[at:])+"```\n") {
		t.Error("docs/operations.md does not show otlp.go")
	}
}
