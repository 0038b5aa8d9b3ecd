package adopt

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
)

// TestAnalyzer: each line of testdata has the findings that its comment names, and no others. A + is one that --write
// settles.
func TestAnalyzer(t *testing.T) {
	if testing.Short() {
		t.Skip("type-checks controller-runtime and client-go from source")
	}
	var paths []string
	for _, name := range []string{"full", "goroutines", "handlers", "late", "lists", "memory", "options", "reconcilers",
		"unread", "values", "whole"} {
		paths = append(paths, "./internal/cli/adopt/testdata/"+name)
	}
	analysistest.Run(t, "../../..", newAnalyzer(nil), paths...)
}
