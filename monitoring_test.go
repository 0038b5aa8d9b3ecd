package rota_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/test/golden"
	"github.com/rota-dev/rota/test/require"
)

const troubleshooting = "docs/troubleshooting.md"

// rule is an alert of docs/alerts.yaml.
type rule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alertRules(t *testing.T) (out []rule) {
	t.Helper()
	text, err := os.ReadFile("docs/alerts.yaml")
	require.NoError(t, err)
	var file struct{ Groups []struct{ Rules []rule } }
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

// TestAlertsPage: docs/troubleshooting.md has a section for each alert, with its annotations, and the alert leads there.
// (tools/alerts/test.sh evaluates them.)
func TestAlertsPage(t *testing.T) {
	text, err := os.ReadFile(troubleshooting)
	require.NoError(t, err)
	above, _, _ := strings.Cut(string(text), "\n## Alerts\n")
	var sections []string
	for _, m := range regexp.MustCompile(`(?m)^### ([A-Za-z]+)$`).FindAllStringSubmatch(above, -1) {
		sections = append(sections, m[1])
	}
	for _, r := range alertRules(t) {
		sections = append(sections, r.Alert)
	}
	links := regexp.MustCompile(`\b(` + strings.Join(sections, "|") + `)\b`)
	pages := regexp.MustCompile(`docs/([a-z-]+\.md)(#[a-z-]+)?`)
	rota := regexp.MustCompile(` (of|in) rota {{ \$labels\.rota }}`)
	var b strings.Builder
	b.WriteString(above + `
## Alerts

<!-- go test -run TestAlertsPage -update . writes the rest of this page from docs/alerts.yaml. -->

Each alert's summary and description. The alert itself also names the rota, as namespace/name.
[operations.md](operations.md#alerts) says what the rules need.
`)
	for _, r := range alertRules(t) {
		require.Equal(t, r.Alert, r.Annotations["runbook_url"],
			"https://github.com/rota-dev/rota/blob/main/"+troubleshooting+"#"+strings.ToLower(r.Alert))
		summary := strings.NewReplacer("Rota {{ $labels.rota }}", "The rota", "{{ $labels.", "`", " }}", "`", "{{ $", "`").
			Replace(rota.ReplaceAllString(r.Annotations["summary"], ""))
		what := links.ReplaceAllStringFunc(summary+"** ("+r.Labels["severity"]+"). "+r.Annotations["description"],
			func(code string) string { return "[" + code + "](#" + strings.ToLower(code) + ")" })
		fmt.Fprintf(&b, "\n### %s\n\n**%s\n", r.Alert, pages.ReplaceAllString(what, "[$1]($1$2)"))
	}
	golden.File(t, troubleshooting, b.String())
}

// TestGrafanaDashboard: panels do not overlap, every expression selects the chosen rota, and every metric that the
// dashboard or an alert names exists.
func TestGrafanaDashboard(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			ID                       int
			Type, Title, Description string
			GridPos                  struct{ H, W, X, Y int }
			Targets                  []struct{ Expr string }
		}
	}
	text, err := os.ReadFile("docs/grafana-dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &dashboard))
	var expressions []string
	for _, r := range alertRules(t) {
		expressions = append(expressions, r.Expr)
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have ID %d", p.ID)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := taken[at]; other != "" || at[0] >= 24 {
					t.Fatalf("panel %q covers %q at %v", p.Title, other, at)
				}
				taken[at] = p.Title
			}
		}
		if p.Type != "row" && (p.Title == "" || p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("panel %d has no title, description or expression", p.ID)
		}
		for _, target := range p.Targets {
			if strings.Count(target.Expr, "rota_") != strings.Count(target.Expr, `rota="$rota"`) {
				t.Errorf("panel %q: not every metric is of the chosen rota: %s", p.Title, target.Expr)
			}
			expressions = append(expressions, target.Expr)
		}
	}

	all := memberMetrics(t)
	maps.Copy(all, dispatcherMetrics(t))
	var known, named []string
	for name, m := range all {
		if known = append(known, name); m.kind == "histogram" {
			known = append(known, name+"_bucket", name+"_count", name+"_sum")
		}
	}
	for _, expr := range expressions {
		named = append(named, regexp.MustCompile(`\brota_[a-z_]+`).FindAllString(expr, -1)...)
	}
	slices.Sort(named)
	if named = slices.Compact(named); len(named) < 40 {
		t.Errorf("only %d metrics are named", len(named))
	}
	for _, name := range named {
		if !slices.Contains(known, name) {
			t.Errorf("the dashboard or an alert names %s, which no member and no dispatcher has", name)
		}
	}
}
