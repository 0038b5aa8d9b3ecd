package engine

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/internal/cli/check"
	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/test/require"
)

// troubles returns what has a section in docs/troubleshooting.md, by the heading under which it is.
func troubles(t *testing.T) (checks, events, alerts []string) {
	t.Helper()
	checks = slices.Concat(check.Codes(), view.Whats())
	for _, reason := range reasons() {
		if !slices.Contains(checks, reason) {
			events = append(events, reason)
		}
	}
	text, err := os.ReadFile("../../docs/alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert string `json:"alert"`
			} `json:"rules"`
		} `json:"groups"`
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			alerts = append(alerts, r.Alert)
		}
	}
	return checks, events, alerts
}

// TestWhereTroubleIsExplained: docs/troubleshooting.md has a section for each check, problem, event and alert, and for
// nothing else; and sections for what people run into.
func TestWhereTroubleIsExplained(t *testing.T) {
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	require.NoError(t, err)
	sections := map[string][]string{} // by the heading above
	_, body, _ := strings.Cut(string(text), "\n## ")
	for _, part := range strings.Split(body, "\n## ") {
		name, rest, _ := strings.Cut(part, "\n")
		for _, section := range strings.Split(rest, "\n### ")[1:] {
			title, words, _ := strings.Cut(section, "\n")
			sections[name] = append(sections[name], title)
			labelled := regexp.MustCompile(`(?s)\n- \*\*You see:\*\* .*\n- \*\*Meaning:\*\* .*\n- \*\*Do:\*\* `)
			switch {
			case name != "Alerts" && !labelled.MatchString(words):
				t.Errorf("docs/troubleshooting.md, section %s: does not say what one sees, what it means and what to do", title)
			case len(strings.Fields(words)) < 15:
				t.Errorf("docs/troubleshooting.md, section %s: says nothing", title)
			}
		}
	}
	checks, events, alerts := troubles(t)
	for name, codes := range map[string][]string{"Checks": checks, "Events": events, "Alerts": alerts} {
		for _, code := range codes {
			if n := count(sections[name], code); n != 1 {
				t.Errorf("docs/troubleshooting.md has %d sections ### %s under ## %s, want 1", n, code, name)
			}
		}
		for _, section := range sections[name] {
			if !slices.Contains(codes, section) {
				t.Errorf("docs/troubleshooting.md: section ### %s under ## %s is about nothing that there is", section, name)
			}
		}
	}
	if n := len(sections["Incidents"]); n < 10 {
		t.Errorf("docs/troubleshooting.md has %d incidents, want 10", n)
	}
}

func count(list []string, word string) int {
	n := 0
	for _, w := range list {
		if w == word {
			n++
		}
	}
	return n
}
