// Package alerts evaluates docs/alerts.yaml, with Prometheus' own engine, over the metrics of members that go through
// what the alerts are about.
package alerts

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// firing are the alerts that fire at some time in each scenario of TestScenarios, and no others do.
var firing = map[string][]string{
	"healthy":    nil,
	"one-crash":  nil,
	"crash-loop": {"RotaMembersCrash"},
	"api-server-gone": {
		"RotaCoverageStopped", "RotaMemberStopped", "RotaReportOld", "RotaSlotsNotOpen", "RotaSlotsNotWorkedOn",
	},
	"table-lost":         {"RotaCoverageStopped", "RotaSlotsNotWorkedOn", "RotaSlotsUnowned", "RotaTableLost"},
	"reports-refused":    {"RotaCoverage", "RotaReportOld"},
	"reports-unreadable": {"RotaCoverageStopped"},
	"stuck":              {"RotaReconcileStuck"},
	"long-reconciles":    nil,
	"not-opened":         {"RotaCoverage", "RotaSlotsNotOpen", "RotaSlotsNotWorkedOn"},
	"watch-refused":      {"RotaDeliveryFailing"},
	"failing":            {"RotaControllerFailing"},
	"duty-failing":       {"RotaDutyFailing"},

	"kind-refused":        {"RotaCoverage", "RotaDeliveryFailing", "RotaKindLacking"},
	"deletions-abandoned": {"RotaDeletionAbandoned"},
	"slot-held-back":      nil,
	"table-large":         {"RotaTableLarge"},

	"rollout-adds-kind":       nil,
	"half-a-rollback":         {"RotaCoverage", "RotaMembersDiffer"},
	"half-a-rollout":          {"RotaMembersDiffer"},
	"two-deployments":         {"RotaMembersDiffer"},
	"two-deployments-at-once": {"RotaMembersDiffer"},
	"lease-differs":           {"RotaMembersDiffer"},
	"lease-too-long":          {"RotaMembersDiffer"},

	"nothing":         {"RotaNoMembers"},   // no process is left
	"one-rota-of-two": {"RotaMembersGone"}, // no process of one of two rotas is left
}

const step = 15 * time.Second

func TestAlerts(t *testing.T) {
	groups, errs := rulefmt.ParseFile("../../docs/alerts.yaml")
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-run", "^TestScenarios$", ".", "-series", dir)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "nothing.txt"), []byte("load 15s\n  up{}"+strings.Repeat(" 0", 80)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A target that is gone is marked stale.
	series := func(rota, state, values string) string {
		return fmt.Sprintf("  rota_slots{rota=%q,state=%q}%s\n", rota, state, values)
	}
	stays, goes := strings.Repeat(" 256", 120), strings.Repeat(" 256", 20)+" stale"+strings.Repeat(" _", 99)
	two := "load 15s\n" + series("stays", "all", stays) + series("stays", "open", stays) + series("goes", "all", goes) + series("goes", "open", goes)
	if err := os.WriteFile(filepath.Join(dir, "one-rota-of-two.txt"), []byte(two), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	ever := map[string]bool{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			want, known := firing[name]
			if !known {
				t.Fatal("there is a scenario of which nobody says which alerts it makes fire")
			}
			series, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := fire(t, groups, string(series))
			for _, alert := range got {
				ever[alert] = true
			}
			if !slices.Equal(got, want) {
				t.Errorf("fire: %v, want %v", got, want)
			}
		})
	}
	if len(files) != len(firing) {
		t.Errorf("%d scenarios, want %d", len(files), len(firing))
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if alert := r.Alert.Value; alert != "" && !ever[alert] {
				t.Errorf("no scenario makes %s fire", alert)
			}
		}
	}
}

// fire returns the alerts that fire at any time.
func fire(t *testing.T, groups *rulefmt.RuleGroups, series string) []string {
	t.Helper()
	storage := promqltest.LoadedStorage(t, series)
	t.Cleanup(func() { _ = storage.Close() })
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	query := rules.EngineQueryFunc(engine, storage)
	scrapes := strings.Count(strings.SplitN(strings.TrimSpace(strings.SplitN(series, "\n", 2)[1]), "\n", 2)[0], " ")
	var out []string
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			expr, err := parser.ParseExpr(r.Expr.Value)
			if err != nil {
				t.Fatal(err)
			}
			rule := rules.NewAlertingRule(r.Alert.Value, expr, time.Duration(r.For), 0, nil, nil, nil, "", true, promslog.NewNopLogger())
			for n := range scrapes - 1 {
				at := time.Unix(0, 0).Add(time.Duration(n) * step)
				if _, err := rule.Eval(context.Background(), 0, at, query, &url.URL{}, 0); err != nil {
					t.Fatal(err)
				}
				if rule.State() == rules.StateFiring {
					out = append(out, rule.Name())
					break
				}
			}
		}
	}
	slices.Sort(out)
	return out
}
