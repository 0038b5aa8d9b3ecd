package rota_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestWorkflowVerbs: the verbs of make that the workflows call exist, and the scripts. (`make check WHAT=tools` holds
// the workflows against actionlint.)
func TestWorkflowVerbs(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	checks := strings.Fields(regexp.MustCompile(`(?m)^CHECKS := (.*)$`).FindStringSubmatch(string(makefile))[1])
	call := regexp.MustCompile(`\bmake ([a-z][a-z-]*)(?: WHAT=(\S+))?`)
	script := regexp.MustCompile(`(?m)^(?:run: )?(\.?[a-z]+/[a-z./-]+)`)
	files, err := filepath.Glob(".github/workflows/*.yml")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
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
					if !regexp.MustCompile(`(?m)^` + m[1] + `( [a-z-]+)*:`).Match(makefile) {
						t.Errorf("%s, job %s: there is no `make %s`", path, name, m[1])
					}
					what := []string{m[2]}
					if strings.HasPrefix(m[2], "${{") {
						what = job.Strategy.Matrix.What
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
}
