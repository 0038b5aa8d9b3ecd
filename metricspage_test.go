package rota_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/dispatch/app"
	"github.com/rota-dev/rota/test/golden"
	"github.com/rota-dev/rota/test/require"
)

const metricsPage = "docs/metrics.md"

// metric is what a collector says of one metric.
type metric struct{ name, help, kind, labels string }

// descText is how a Desc prints itself: it has no other way to tell.
var descText = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: ("(?:[^"\\]|\\.)*"), .* variableLabels: \{([^}]*)\}\}$`)

// metricsOf returns the metrics of collectors, by name.
func metricsOf(t *testing.T, collectors ...prometheus.Collector) map[string]metric {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	out := map[string]metric{}
	for _, c := range collectors {
		require.NoError(t, registry.Register(c))
		descs := make(chan *prometheus.Desc, 1000)
		c.Describe(descs)
		close(descs)
		for d := range descs {
			m := descText.FindStringSubmatch(d.String())
			if m == nil {
				t.Fatalf("cannot read %s", d)
			}
			var help string
			_, err := fmt.Sscanf(m[2], "%q", &help)
			require.NoError(t, err)
			kind := "gauge"
			if strings.HasSuffix(m[1], "_total") {
				kind = "counter"
			}
			out[m[1]] = metric{m[1], help, kind, m[3]}
		}
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families { // what has a value says what it is
		m := out[f.GetName()]
		m.kind = strings.ToLower(f.GetType().String())
		out[f.GetName()] = m
	}
	return out
}

// memberMetrics are those of a member, dispatcherMetrics those that a dispatcher has besides.
func memberMetrics(t *testing.T) map[string]metric {
	t.Helper()
	r, err := rota.New(&rest.Config{Host: "https://127.0.0.1:1"},
		rota.Options{Name: "website", Namespace: "operators", Identity: rota.Identity{Pod: "web-0"}})
	require.NoError(t, err)
	return metricsOf(t, r.Collector())
}

func dispatcherMetrics(t *testing.T) map[string]metric {
	t.Helper()
	return metricsOf(t, app.Metrics()...)
}

// TestMetricsPage: the tables of docs/metrics.md have every metric, with its own text.
func TestMetricsPage(t *testing.T) {
	page, err := os.ReadFile(metricsPage)
	require.NoError(t, err)
	want := string(page)
	for part, metrics := range map[string]map[string]metric{"Members": memberMetrics(t), "Dispatchers": dispatcherMetrics(t)} {
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(metrics)) {
			m := metrics[name]
			if m.labels != "" {
				name += "{" + m.labels + "}"
			}
			if name = "`" + name + "`"; m.kind == "histogram" {
				name += " (histogram)"
			}
			fmt.Fprintf(&b, "| %s | %s |\n", name, m.help)
		}
		rows := regexp.MustCompile(`(?s)(\n## ` + part + `\n.*?\n\| --- \| --- \|\n)(?:\|[^\n]*\n)*`)
		if !rows.MatchString(want) {
			t.Errorf("%s has no table under %s", metricsPage, part)
		}
		want = rows.ReplaceAllStringFunc(want, func(s string) string { return rows.FindStringSubmatch(s)[1] + b.String() })
	}
	golden.File(t, metricsPage, want)
}

// adapters is the name that the example of scaling has an adapter give to a sum.
const adapters = "rota_dispatch_pending"

// TestMetricsAreNamedRightly: no page speaks of a metric that there is not.
func TestMetricsAreNamedRightly(t *testing.T) {
	known := memberMetrics(t)
	maps.Copy(known, dispatcherMetrics(t))
	for page, text := range pages(t) {
		for _, name := range regexp.MustCompile("`(rota_[a-z_]*[a-z])[`{]").FindAllStringSubmatch(text, -1) {
			if _, ok := known[name[1]]; !ok && name[1] != adapters {
				t.Errorf("%s speaks of %s, which no member and no dispatcher has", page, name[1])
			}
		}
	}
}
