package rota_test

import (
	"fmt"
	"maps"
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

func metricTable(metrics map[string]metric) string {
	var b strings.Builder
	b.WriteString("| metric | type | meaning |\n| --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		m := metrics[name]
		if m.labels != "" {
			name += "{" + m.labels + "}"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, m.kind, m.help)
	}
	return b.String()
}

// TestMetricsPage: docs/metrics.md says of every metric what it is, as the metrics themselves do.
func TestMetricsPage(t *testing.T) {
	want := fmt.Sprintf(`# Metrics

<!-- go test -run TestMetricsPage -update . writes this page from the texts of the metrics. -->

Every metric that a member or a dispatcher has, with the text that it has in the process. None names an object or a
user, so their number does not grow with the objects. [alerts.yaml](alerts.yaml) has alerts on them,
[troubleshooting.md](troubleshooting.md#alerts) says what to do about each, and
[grafana-dashboard.json](grafana-dashboard.json) shows them.

## Members

`+"`ctrlrt`"+` registers these with controller-runtime's registry. With client-go alone, register `+"`Rota.Collector()`"+`. All
have the label `+"`rota`"+` (namespace/name). Figures of the whole rota are the same on every member: take their maximum, not
their sum.

%s
[delivery.md](delivery.md) says more about the metrics of delivery and labels, and [operations.md](operations.md) about
[events](operations.md#events) and [coverage findings](operations.md#coverage-findings).

## Dispatchers

A [dispatcher](dispatch.md) serves those of its member, those of its process (Go, and requests to the API server), and
these. All have the label `+"`rota`"+`. The types of problems are in [dispatch.md](dispatch.md#problems).

%s`, metricTable(memberMetrics(t)), metricTable(dispatcherMetrics(t)))
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
