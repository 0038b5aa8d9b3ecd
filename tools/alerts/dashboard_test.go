package alerts

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// dashboard is what the tests read of Grafana's form of one. Schema version 39 is that of Grafana 10 and 11.
type dashboard struct {
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Panels        []struct {
		ID      int    `json:"id"`
		Type    string `json:"type"`
		Title   string `json:"title"`
		Help    string `json:"description"`
		GridPos struct{ H, W, X, Y int }
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Name string `json:"name"`
			Type string `json:"type"`
		} `json:"list"`
	} `json:"templating"`
}

func readDashboard(t *testing.T) *dashboard {
	t.Helper()
	text, err := os.ReadFile("../../docs/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// filled returns an expression of a panel as Grafana sends it.
func filled(expr, rota string) string {
	return strings.NewReplacer("$rota", rota, "$__rate_interval", "1m").Replace(expr)
}

// metricsIn returns the metrics that an expression names, without the suffixes of histograms.
func metricsIn(t *testing.T, expr string) []string {
	t.Helper()
	parsed, err := parser.ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	var out []string
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			out = append(out, v.Name)
		}
		return nil
	})
	return out
}

// named returns every metric that the dashboard or a rule names.
func named(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			out = append(out, metricsIn(t, filled(target.Expr, "a/b"))...)
		}
	}
	groups, errs := rulefmt.ParseFile("../../docs/alerts.yaml")
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			out = append(out, metricsIn(t, r.Expr.Value)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// The dashboard is one that Grafana can show: its panels do not overlap, and every expression is about one rota.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.Title != "Rota" || d.SchemaVersion != 39 {
		t.Errorf("title %q, schema version %d", d.Title, d.SchemaVersion)
	}
	var variables, rows []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name+" "+v.Type)
	}
	if want := []string{"datasource datasource", "rota query"}; !slices.Equal(variables, want) {
		t.Errorf("variables %v, want %v", variables, want)
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have ID %d", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q covers %q at %d, %d", p.Title, other, x, y)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if p.Title == "" || p.Help == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d has no title, text or expression", p.ID)
		}
		for _, target := range p.Targets {
			metricsIn(t, filled(target.Expr, "a/b"))
			if strings.Count(target.Expr, "rota_") != strings.Count(target.Expr, `rota="$rota"`) {
				t.Errorf("%s: not every metric is that of the chosen rota", target.Expr)
			}
		}
	}
	if want := []string{"Shares", "Handovers", "Members", "Coverage", "Dispatchers"}; !slices.Equal(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
}

// Every metric that the dashboard or a rule names is one that members or dispatchers have: docs/metrics.md is written
// from them.
func TestNamedMetricsExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)[^`]*` \\| ([a-z]+) \\|")
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		known[m[1]] = true
		if m[2] == "histogram" {
			known[m[1]+"_bucket"], known[m[1]+"_count"], known[m[1]+"_sum"] = true, true, true
		}
	}
	names := named(t)
	if len(names) < 40 {
		t.Errorf("only %d metrics are named", len(names))
	}
	for _, name := range names {
		if !known[name] {
			t.Errorf("%s is named, and nobody has it", name)
		}
	}
}
