package rota_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/test/require"
)

// TestWorkflowVerbs: the verbs of make that the workflows call exist, and the scripts; and each night runs all checks
// but those that only measure. (`make check WHAT=tools` holds the workflows against actionlint.)
func TestWorkflowVerbs(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	checks := strings.Fields(regexp.MustCompile(`(?m)^CHECKS := (.*)$`).FindStringSubmatch(string(makefile))[1])
	call := regexp.MustCompile(`\bmake ([a-z][a-z/-]*)(?: WHAT=(\S+))?`)
	script := regexp.MustCompile(`(?m)^(?:run: )?(\.?[a-z]+/[a-z./-]+)`)
	files, err := filepath.Glob(".github/workflows/*.yml")
	require.NoError(t, err)
	// These measure, on a machine that does nothing else; mutate lists what somebody has to look at.
	checked := []string{"bench", "front", "mutate", "kubernetes"} // the latter is a job
	seen := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var workflow struct {
			Jobs map[string]struct {
				Strategy struct{ Matrix struct{ What []string } }
				Steps    []struct{ Run string }
			}
		}
		if err := yaml.Unmarshal(text, &workflow); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for name, job := range workflow.Jobs {
			for _, step := range job.Steps {
				for _, m := range call.FindAllStringSubmatch(step.Run, -1) {
					seen++
					if !regexp.MustCompile(`(?m)^` + m[1] + `( [a-z/-]+)*:`).Match(makefile) {
						t.Errorf("%s, job %s: there is no `make %s`", path, name, m[1])
					}
					what := []string{m[2]}
					if strings.HasPrefix(m[2], "${{") {
						what = job.Strategy.Matrix.What
						checked = append(checked, what...)
					}
					for _, w := range what {
						if m[1] == "check" && !slices.Contains(checks, w) {
							t.Errorf("%s, job %s: there is no `make check WHAT=%s`", path, name, w)
						}
					}
				}
				for _, m := range script.FindAllStringSubmatch(step.Run, -1) {
					seen++
					if info, err := os.Stat(m[1]); err != nil || info.Mode()&0o111 == 0 {
						t.Errorf("%s, job %s: %s is no program: %v", path, name, m[1], err)
					}
				}
			}
		}
	}
	if seen < 6 {
		t.Errorf("%d calls in %v", seen, files)
	}
	slices.Sort(checked)
	slices.Sort(checks)
	if !slices.Equal(checked, checks) {
		t.Errorf("nightly.yml and what is run by hand are %v, and the checks are %v", checked, checks)
	}
}

// TestActionsArePinned: workflows name actions by commit. A tag can be moved.
func TestActionsArePinned(t *testing.T) {
	files, err := filepath.Glob(".github/workflows/*.yml")
	require.NoError(t, err)
	uses := regexp.MustCompile(`\buses: *(.*)`)
	pinned := regexp.MustCompile(`^[\w-]+/[\w/-]+@[0-9a-f]{40} # v[0-9.]+$`)
	seen := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range uses.FindAllStringSubmatch(string(text), -1) {
			if seen++; !pinned.MatchString(m[1]) {
				t.Errorf("%s: %s: give the commit, and the version as a comment", path, m[1])
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d actions in %v", seen, files)
	}
}

// TestToolsAreUpdated: dependabot proposes indirect modules by name only, and that is what Go makes of a tool's.
func TestToolsAreUpdated(t *testing.T) {
	text, err := os.ReadFile(".github/dependabot.yml")
	require.NoError(t, err)
	files, err := filepath.Glob("tools/*/go.mod")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	line := regexp.MustCompile(`(?m)^(?:tool |\t)([^\s()]+)$`)
	for _, file := range append(files, "tools/go.mod") {
		mod, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range line.FindAllStringSubmatch(string(mod), -1) {
			known := m[1] == "github.com/goreleaser/goreleaser/v2" // rises by hand
			for module := m[1]; module != "." && !known; module = path.Dir(module) {
				direct := regexp.MustCompile(`(?m)^(?:require |\t)` + regexp.QuoteMeta(module) + ` v\S+$`)
				known = direct.Match(mod) || strings.Contains(string(text), "dependency-name: "+module+"\n")
			}
			if !known {
				t.Errorf("%s: the module of the tool %s is indirect: name it in .github/dependabot.yml", file, m[1])
			}
		}
	}
}
