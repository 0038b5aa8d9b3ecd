package scale

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/route"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/stats"
	v1 "github.com/prometheus/prometheus/web/api/v1"
)

// lookback is Prometheus' default.
const lookback = 5 * time.Minute

// startPrometheus runs a Prometheus server without its pages, and returns its URL. It scrapes the Pods of a namespace
// with the labels that a ServiceMonitor adds. It ends with the test.
func startPrometheus(t *testing.T, namespace string, interval time.Duration, pods func() map[string]string) string {
	t.Helper()
	log := promslog.NewNopLogger()
	db, err := tsdb.Open(t.TempDir(), log, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	every := model.Duration(interval).String()
	c, err := config.Load("global: {scrape_interval: "+every+", scrape_timeout: "+every+"}\n"+
		"scrape_configs: [{job_name: website-operator}]\n", log)
	if err != nil {
		t.Fatal(err)
	}
	scraper, err := scrape.NewManager(&scrape.Options{DiscoveryReloadInterval: model.Duration(250 * time.Millisecond)},
		log, nil, db, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if err := scraper.ApplyConfig(c); err != nil {
		t.Fatal(err)
	}
	sets := make(chan map[string][]*targetgroup.Group)
	scraped := make(chan error, 1)
	go func() { scraped <- scraper.Run(sets) }()
	ctx, end := context.WithCancel(context.Background())
	discovered := make(chan struct{})
	go func() {
		defer close(discovered)
		discover(ctx, sets, namespace, pods)
	}()
	t.Cleanup(func() {
		end()
		<-discovered
		scraper.Stop()
		if err := <-scraped; err != nil {
			t.Error(err)
		}
	})
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute, LookbackDelta: lookback})
	server := httptest.NewServer(api(engine, db, c))
	t.Cleanup(server.Close)
	return server.URL
}

// discover tells the scraper where the Pods are.
func discover(
	ctx context.Context, sets chan<- map[string][]*targetgroup.Group, namespace string, pods func() map[string]string,
) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		group := &targetgroup.Group{Source: "pods"}
		for pod, address := range pods() {
			group.Targets = append(group.Targets, model.LabelSet{
				model.AddressLabel: model.LabelValue(address), "namespace": model.LabelValue(namespace),
				"pod": model.LabelValue(pod),
			})
		}
		select {
		case sets <- map[string][]*targetgroup.Group{"website-operator": {group}}:
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// api is Prometheus' HTTP API.
func api(engine *promql.Engine, db *tsdb.DB, c *config.Config) http.Handler {
	a := v1.NewAPI(engine, db, nil, nil,
		func(context.Context) v1.ScrapePoolsRetriever { return nil },
		func(context.Context) v1.TargetRetriever { return nil },
		func(context.Context) v1.AlertmanagerRetriever { return nil },
		func() config.Config { return *c }, nil, v1.GlobalURLOptions{},
		func(f http.HandlerFunc) http.HandlerFunc { return f }, nil, "", false, promslog.NewNopLogger(),
		func(context.Context) v1.RulesRetriever { return nil }, 0, 0, 0, false, nil,
		func() (v1.RuntimeInfo, error) { return v1.RuntimeInfo{}, errors.New("not here") }, &v1.PrometheusVersion{},
		nil, nil, prometheus.NewRegistry(), prometheus.NewRegistry(),
		func(context.Context, *stats.Statistics, string) stats.QueryStats { return nil }, false, nil, false, false, false,
		false, lookback, false, false, nil)
	r := route.New().WithPrefix("/api/v1")
	a.Register(r)
	return r
}
