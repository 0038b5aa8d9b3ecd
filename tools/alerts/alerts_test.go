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
	"sync"
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
	"crash-loop": {"RotaMemberFlapping"},
	"lapses":     {"RotaMemberFlapping"},
	"api-server-gone": {
		"RotaCoverageStopped", "RotaMemberStopped", "RotaReportOld", "RotaSlotsNotOpen", "RotaSlotsNotWorkedOn",
	},
	"table-lost":         {"RotaCoverageStopped", "RotaSlotUnowned", "RotaSlotsNotWorkedOn", "RotaTableLost"},
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
	"handover-stuck":      {"RotaHandoverStuck", "RotaReconcileStuck"},
	"skewed":              {"RotaLoadSkewed"},
	"fenced":              {"RotaFenceRejections"},
	"leaves-slowly":       nil,
	"late-writes":         nil,
	"paused":              {"RotaMovesPaused"},
	"canary":              {"RotaCanaryBack", "RotaPinUnmet"},
	"drained":             nil,
	"another-one-leads":   {"RotaSlotsNotWorkedOn"}, // it cannot know whether that one works
	"permission-removed":  {"RotaCoverage", "RotaPermissionMissing", "RotaReportOld"},
	"keys-wait":           {"RotaCoverage", "RotaKeysWait"},
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

	"clock-differs": {"RotaClockSkew"},

	"dispatch-healthy":       nil,
	"dispatch-no-workers":    {"RotaDispatchKeysWait"},
	"dispatch-key-fails":     {"RotaDispatchKeyFails"},
	"dispatch-workers-die":   {"RotaDispatchTakesExpire"},
	"dispatch-no-api-server": {"RotaDispatchReviewsFail"},
}

// written are series for an hour of what the lab has not: dispatchers, and members with different clocks. They are in
// the notation of Prometheus' own tests.
var written = map[string][]string{
	"clock-differs": {`rota_events_total{rota="a/b",reason="ClockSkew"} 0x60 1x178`},
	"dispatch-healthy": {
		`rota_dispatch_oldest_seconds{rota="a/b",kind="K"} 0+1x20 0+1x218`,
		`rota_dispatch_takes_ended_total{rota="a/b",kind="K",how="ok"} 0+30x239`,
		`rota_dispatch_takes_ended_total{rota="a/b",kind="K",how="expired"} 0+1x239`,
		`rota_dispatch_reviews_total{rota="a/b",review="token",outcome="failed"} 1x239`,
	},
	"dispatch-no-workers": {`rota_dispatch_oldest_seconds{rota="a/b",kind="K"} 0+15x239`},
	"dispatch-key-fails":  {`rota_dispatch_failing_seconds{rota="a/b",kind="K"} 0+15x239`},
	"dispatch-workers-die": {
		`rota_dispatch_takes_ended_total{rota="a/b",kind="K",how="ok"} 0+30x239`,
		`rota_dispatch_takes_ended_total{rota="a/b",kind="K",how="expired"} 0+3x239`,
	},
	"dispatch-no-api-server": {`rota_dispatch_reviews_total{rota="a/b",review="token",outcome="failed"} 0+1x239`},
}

const step = 15 * time.Second

// temporary is removed at the end.
var temporary string

func TestMain(m *testing.M) {
	var err error
	if temporary, err = os.MkdirTemp("", "alerts"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(temporary)
	os.Exit(code)
}

// scenarios runs those of the root package, and returns the output if they fail.
var scenarios = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("go", "test", "-count=1", "-run", "^TestScenarios$", "./internal/engine", "-series", temporary)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	return string(out), err
})

// scenarioDir returns a directory with the metrics of each scenario of the root package.
func scenarioDir(t *testing.T) string {
	t.Helper()
	if out, err := scenarios(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return temporary
}

func TestAlerts(t *testing.T) {
	groups, errs := rulefmt.ParseFile("../../docs/alerts.yaml")
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(scenarioDir(t))); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name+".txt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("nothing", "load 15s\n  up{}"+strings.Repeat(" 0", 80)+"\n")
	// A target that is gone is marked stale.
	series := func(rota, state, values string) string {
		return fmt.Sprintf("  rota_slots{rota=%q,state=%q}%s\n", rota, state, values)
	}
	stays, goes := strings.Repeat(" 256", 120), strings.Repeat(" 256", 20)+" stale"+strings.Repeat(" _", 99)
	write("one-rota-of-two", "load 15s\n"+series("stays", "all", stays)+series("stays", "open", stays)+
		series("goes", "all", goes)+series("goes", "open", goes))
	for name, lines := range written {
		healthy := []string{`rota_slots{rota="a/b",state="all"} 256x239`, `rota_slots{rota="a/b",state="open"} 256x239`}
		write(name, "load 15s\n  "+strings.Join(append(healthy, lines...), "\n  ")+"\n")
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

// Every alert leads to its section in docs/troubleshooting.md, and there is none there for an alert that is no more.
func TestRunbooks(t *testing.T) {
	groups, errs := rulefmt.ParseFile("../../docs/alerts.yaml")
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	var sections, alerts []string
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "### Rota"); ok {
			sections = append(sections, "Rota"+name)
		}
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			alerts = append(alerts, r.Alert.Value)
			want := "https://github.com/rota-dev/rota/blob/main/docs/troubleshooting.md#" + strings.ToLower(r.Alert.Value)
			if got := r.Annotations["runbook_url"]; got != want {
				t.Errorf("%s leads to %q, want %q", r.Alert.Value, got, want)
			}
		}
	}
	slices.Sort(sections)
	slices.Sort(alerts)
	if !slices.Equal(sections, alerts) {
		t.Errorf("sections %v, alerts %v", sections, alerts)
	}
}

// fire returns the alerts that fire at any time.
func fire(t *testing.T, groups *rulefmt.RuleGroups, series string) []string {
	t.Helper()
	storage := promqltest.LoadedStorage(t, series)
	t.Cleanup(func() { _ = storage.Close() })
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	query := rules.EngineQueryFunc(engine, storage)
	first := strings.SplitN(strings.TrimSpace(strings.SplitN(series, "\n", 2)[1]), "\n", 2)[0]
	scrapes := strings.Count(first, " ")
	if strings.HasSuffix(first, "x239") {
		scrapes = 240
	}
	var out []string
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			expr, err := parser.ParseExpr(r.Expr.Value)
			if err != nil {
				t.Fatal(err)
			}
			rule := rules.NewAlertingRule(r.Alert.Value, expr, time.Duration(r.For), 0, nil, nil, nil, "", true,
				promslog.NewNopLogger())
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
