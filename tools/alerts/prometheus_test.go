package alerts

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/tsdb"
)

// server is a Prometheus server without its web pages: it scrapes, stores, and evaluates docs/alerts.yaml, each every
// second.
type server struct {
	t      *testing.T
	db     *tsdb.DB
	engine *promql.Engine
	rules  *rules.Manager
	began  time.Time
}

// startPrometheus scrapes addresses by the names of their instances, of processes that run or do not.
func startPrometheus(t *testing.T, targets map[string]string) *server {
	t.Helper()
	model.NameValidationScheme = model.UTF8Validation // as Prometheus' own main does
	log := promslog.NewNopLogger()
	db, err := tsdb.Open(t.TempDir(), log, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c, err := config.Load(`
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
scrape_configs: [{job_name: rota}]
`, log)
	if err != nil {
		t.Fatal(err)
	}
	scraper, err := scrape.NewManager(&scrape.Options{DiscoveryReloadInterval: model.Duration(time.Second)}, log, nil,
		db, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if err := scraper.ApplyConfig(c); err != nil {
		t.Fatal(err)
	}
	group := &targetgroup.Group{Source: "test"}
	for instance, address := range targets {
		group.Targets = append(group.Targets, model.LabelSet{
			model.AddressLabel: model.LabelValue(address), model.InstanceLabel: model.LabelValue(instance),
		})
	}
	sets := make(chan map[string][]*targetgroup.Group, 1)
	sets <- map[string][]*targetgroup.Group{"rota": {group}}
	done := make(chan error, 1)
	go func() { done <- scraper.Run(sets) }()
	t.Cleanup(func() {
		scraper.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	s := &server{t: t, db: db, began: time.Now(), engine: promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1e7, Timeout: time.Minute, LookbackDelta: 5 * time.Second,
	})}
	s.rules = rules.NewManager(&rules.ManagerOptions{
		ExternalURL: &url.URL{}, QueryFunc: rules.EngineQueryFunc(s.engine, db), Context: t.Context(), Appendable: db,
		Queryable: db, Logger: log, Registerer: prometheus.NewRegistry(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
	})
	files := []string{"../../docs/alerts.yaml"}
	if err := s.rules.Update(time.Second, files, labels.EmptyLabels(), "", nil); err != nil {
		t.Fatal(err)
	}
	go s.rules.Run()
	t.Cleanup(s.rules.Stop)
	return s
}

// now returns what an expression is now.
func (s *server) now(expr string) promql.Vector {
	s.t.Helper()
	out, err := rules.EngineQueryFunc(s.engine, s.db)(s.t.Context(), expr, time.Now())
	if err != nil {
		s.t.Fatalf("%s: %v", expr, err)
	}
	return out
}

// over returns what an expression was in each second since the server began.
func (s *server) over(expr string) promql.Matrix {
	s.t.Helper()
	query, err := s.engine.NewRangeQuery(s.t.Context(), s.db, nil, expr, s.began, time.Now(), time.Second)
	if err != nil {
		s.t.Fatalf("%s: %v", expr, err)
	}
	defer query.Close()
	out, err := query.Exec(s.t.Context()).Matrix()
	if err != nil {
		s.t.Fatalf("%s: %v", expr, err)
	}
	slices.SortFunc(out, func(a, b promql.Series) int { return labels.Compare(a.Metric, b.Metric) })
	for i, series := range out { // the engine uses its own again
		out[i].Floats = slices.Clone(series.Floats)
	}
	return out
}

// until waits until an expression has a result.
func (s *server) until(expr string) {
	s.t.Helper()
	begun, tick := time.Now(), time.NewTicker(200*time.Millisecond)
	defer tick.Stop()
	for len(s.now(expr)) == 0 {
		if time.Since(begun) > patience {
			s.t.Fatalf("after %v not yet: %s\nup: %v\nslots: %v", patience, expr, s.now("up"), s.now("rota_slots"))
		}
		<-tick.C
	}
	s.t.Logf("%3.0f s: after %.1f s: %s", time.Since(s.began).Seconds(), time.Since(begun).Seconds(), expr)
}

// healthy fails if a rule cannot be evaluated, or its text cannot be filled in.
func (s *server) healthy() {
	s.t.Helper()
	count := 0
	for _, g := range s.rules.RuleGroups() {
		for _, r := range g.Rules() {
			if count++; r.Health() != rules.HealthGood {
				s.t.Errorf("rule %s is %s: %v", r.Name(), r.Health(), r.LastError())
			}
		}
	}
	if count < 20 {
		s.t.Errorf("%d rules are evaluated", count)
	}
}

// firing returns which alerts of which rotas are firing now.
func (s *server) firing() []string {
	s.t.Helper()
	var out []string
	for _, sample := range s.now(`ALERTS{alertstate="firing"}`) {
		out = append(out, fmt.Sprintf("%s %s", sample.Metric.Get("alertname"), sample.Metric.Get("rota")))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
