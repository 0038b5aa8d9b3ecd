package engine

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/internal/cli/check"
	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/test/require"
)

// found returns what a pattern's first group matches in Go files other than tests.
func found(t *testing.T, pattern string, globs ...string) (out []string) {
	t.Helper()
	for _, glob := range globs {
		files, err := filepath.Glob(glob)
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(source), -1) {
				out = append(out, m[1])
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestReasons: reasons returns the reasons of all events that the sources send.
func TestReasons(t *testing.T) {
	sent := found(t, `(?:Reason: |\.note\(|\.notice\()"([A-Za-z]+)"`, "*.go", "../../ctrlrt/*.go", "../controllers/*.go",
		"../labeller/*.go", "../replica/*.go", "../report/*.go", "../protocol/member/*.go", "../protocol/planner/*.go")
	if !slices.Equal(sent, reasons()) {
		t.Errorf("the sources send %v, reasons returns %v", sent, reasons())
	}
}

// TestWhereTroubleIsExplained: docs/troubleshooting.md explains each check, problem and event once, and nothing else: in
// a section, or in the table of events that need no action. (TestAlertsPage writes its alerts.)
func TestWhereTroubleIsExplained(t *testing.T) {
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	require.NoError(t, err)
	_, page, _ := strings.Cut(string(text), "\n## Checks and events\n")
	page, _, _ = strings.Cut(page, "\n## Alerts\n")
	page, table, _ := strings.Cut(page, "\n## Events that need no action\n")
	var explained []string
	for _, section := range strings.Split(page, "\n### ")[1:] {
		title, words, _ := strings.Cut(section, "\n")
		explained = append(explained, title)
		if len(strings.Fields(words)) < 10 {
			t.Errorf("docs/troubleshooting.md, section %s: says nothing", title)
		}
	}
	for _, what := range coverage.Whats() {
		if !strings.Contains(page, "\n| `"+what.String()+"` |") {
			t.Errorf("docs/troubleshooting.md has no row of the finding %s", what)
		}
	}
	for row := range strings.Lines(table) {
		names, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		for _, m := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(names, -1) {
			explained = append(explained, m[1])
		}
	}
	slices.Sort(explained)
	want := slices.Concat(check.Codes(), view.Whats(), reasons(), found(t, `event[A-Za-z]+ *= "([A-Za-z]+)"`, "../../cmd/rota/*.go"))
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(explained, want) {
		t.Errorf("docs/troubleshooting.md (-) does not explain each code and event (+) once:\n%s", cmp.Diff(explained, want))
	}
}
