package app

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/rota-dev/rota/internal/dispatch/access"
	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/internal/server"
)

// paths are the paths that metrics name. Others are counted together, so that clients cannot create new time series.
var paths = []string{
	wire.PathTake, wire.PathStream, wire.PathCredit, wire.PathDone, wire.PathExtend, wire.PathRelease, wire.PathStats,
	wire.PathFailing, wire.PathOpenAPI, otherPath,
}

const otherPath = "other"

// problems are the problems that a dispatcher answers with.
var problems = []string{
	wire.ProblemInvalid, wire.ProblemUnauthenticated, wire.ProblemForbidden, wire.ProblemUnknownKind,
	wire.ProblemNotFound, wire.ProblemMethod, wire.ProblemEnded, wire.ProblemTimeout, wire.ProblemTooLarge,
	wire.ProblemMediaType,
	wire.ProblemTooMany, wire.ProblemUnavailable,
}

// metrics are a dispatcher's metrics, without its member's. They contain no names of objects or users.
type metrics struct {
	// stats, now and unfollowedKinds are set before anything is collected.
	stats           func() []queue.Stats
	now             func() time.Duration
	unfollowedKinds func() map[string]error
	connected       func() server.Connections

	requests, refused *prometheus.CounterVec
	underWay          *prometheus.GaugeVec
	wait, work        *prometheus.HistogramVec

	ready, delayed, taken, oldest, failing, failingFor, unfollowed, changes, takes, ended *prometheus.Desc

	connections, closed *prometheus.Desc
}

func newMetrics(kinds []string) *metrics {
	counter := func(name, help string, by ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, by)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: []float64{
			0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800,
		}}, []string{"kind"})
	}
	desc := func(name, help string, by ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"kind"}, by...), nil)
	}
	m := &metrics{
		requests: counter("rota_dispatch_requests_total", "Answered requests, by path and code (499: the client "+
			"had gone).", "path", "code"),
		refused: counter("rota_dispatch_refused_total", "Refused requests, by type of problem.",
			"problem"),
		underWay: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rota_dispatch_requests_under_way",
			Help: "Requests under way, including polls (/v1/take) and streams (/v1/stream).",
		}, []string{"path"}),
		wait: histogram("rota_dispatch_wait_seconds", "Time that keys had been ready when they were taken."),
		work: histogram("rota_dispatch_take_seconds",
			"Time that workers had keys, for takes that ended with ok or retry."),
		ready: desc("rota_dispatch_ready", "Keys of this dispatcher that wait for a worker."),
		delayed: desc("rota_dispatch_delayed", "Keys of this dispatcher that failed or were put off, and wait for "+
			"a time."),
		taken: desc("rota_dispatch_taken", "Keys of this dispatcher that workers have."),
		oldest: desc("rota_dispatch_oldest_seconds", "Time that the oldest ready key has waited. It grows if there "+
			"are too few workers."),
		failing: desc("rota_dispatch_failing", "Keys of this dispatcher whose last take failed or expired (GET "+
			"/v1/failing lists them)."),
		failingFor: desc("rota_dispatch_failing_seconds", "Time that this dispatcher's longest failing key has had "+
			"no success."),
		unfollowed: desc("rota_dispatch_unfollowed", "1 while changes of objects of the kind or their children do "+
			"not arrive. The log says why."),
		changes: desc("rota_dispatch_changes_total", "Changes of objects in this dispatcher's slots, and objects "+
			"of slots that came."),
		takes: desc("rota_dispatch_takes_total", "Takes that this dispatcher has handed out."),
		ended: desc("rota_dispatch_takes_ended_total", "Ended takes: ok and retry by workers, released, or expired "+
			"because the worker died or was too slow to extend.", "how"),
	}
	m.connections = prometheus.NewDesc("rota_dispatch_connections", "Connections of workers and other "+
		"dispatchers, by whether a request on them has shown a valid token.", []string{"token"}, nil)
	m.closed = prometheus.NewDesc("rota_dispatch_connections_closed_total", "Connections closed by the "+
		"dispatcher: room (limits.connections was reached), address (too many from it without a valid token), idle "+
		"(no valid token for 20 s).", []string{"why"}, nil)
	for _, path := range paths {
		m.underWay.WithLabelValues(path)
	}
	for _, problem := range problems { // a counter that appears with its first event would not show as an increase
		m.refused.WithLabelValues(problem)
	}
	for _, kind := range kinds {
		m.wait.WithLabelValues(kind)
		m.work.WithLabelValues(kind)
	}
	return m
}

// Metrics returns the metrics of a new dispatcher, without its member's.
func Metrics() []prometheus.Collector {
	m := newMetrics([]string{"ConfigMap"})
	m.stats, m.now = func() []queue.Stats { return nil }, func() time.Duration { return 0 }
	m.unfollowedKinds, m.connected = func() map[string]error { return nil }, func() server.Connections {
		return server.Connections{Closed: map[string]int{"room": 0}}
	}
	return []prometheus.Collector{m, access.Metrics()}
}

func (m *metrics) vectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.refused, m.underWay, m.wait, m.work}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, v := range m.vectors() {
		v.Describe(out)
	}
	for _, d := range []*prometheus.Desc{m.ready, m.delayed, m.taken, m.oldest, m.failing, m.failingFor, m.unfollowed,
		m.changes, m.takes, m.ended,
		m.connections, m.closed} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for _, v := range m.vectors() {
		v.Collect(out)
	}
	c := m.connected()
	for token, n := range map[string]int{"yes": c.Known, "no": c.Unknown} {
		out <- prometheus.MustNewConstMetric(m.connections, prometheus.GaugeValue, float64(n), token)
	}
	for why, n := range c.Closed {
		out <- prometheus.MustNewConstMetric(m.closed, prometheus.CounterValue, float64(n), why)
	}
	now, unfollowed := m.now(), m.unfollowedKinds()
	for _, s := range m.stats() {
		gauge := func(d *prometheus.Desc, v float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, s.Kind)
		}
		count := func(d *prometheus.Desc, n uint64, by ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{s.Kind}, by...)...)
		}
		gauge(m.ready, float64(s.Ready))
		gauge(m.delayed, float64(s.Delayed))
		gauge(m.taken, float64(s.Taken))
		oldest := 0.0
		if s.Ready > 0 {
			oldest = max(now-s.Oldest, 0).Seconds()
		}
		gauge(m.oldest, oldest)
		gauge(m.failing, float64(s.Failing))
		failingFor := 0.0
		if s.Failing > 0 {
			failingFor = max(now-s.FailingSince, 0).Seconds()
		}
		gauge(m.failingFor, failingFor)
		gauge(m.unfollowed, boolean(unfollowed[s.Kind] != nil))
		count(m.changes, s.Counts.Changes)
		count(m.takes, s.Counts.Taken)
		count(m.ended, s.Counts.Done, "ok")
		count(m.ended, s.Counts.Retried, "retry")
		count(m.ended, s.Counts.Released, "released")
		count(m.ended, s.Counts.Expired, "expired")
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// answered counts a request. See front.Options.Observe.
func (m *metrics) answered(path string, code int, problem string) {
	m.requests.WithLabelValues(path, strconv.Itoa(code)).Inc()
	if problem != "" {
		m.refused.WithLabelValues(problem).Inc()
	}
}

// during counts requests in flight.
func (m *metrics) during(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if !slices.Contains(paths, path) {
			path = otherPath
		}
		gauge := m.underWay.WithLabelValues(path)
		gauge.Inc()
		defer gauge.Dec()
		next.ServeHTTP(w, r)
	})
}

// serve returns a handler for the metrics of collectors, with a label that names the rota, and of the process: Go's,
// and requests to the API server. The member's metrics have the label already.
func serve(rota string, member prometheus.Collector, others ...prometheus.Collector) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(member); err != nil {
		return nil, err
	}
	labeled := prometheus.WrapRegistererWith(prometheus.Labels{"rota": rota}, registry)
	for _, c := range others {
		if err := labeled.Register(c); err != nil {
			return nil, err
		}
	}
	return promhttp.HandlerFor(prometheus.Gatherers{registry, ctrlmetrics.Registry}, promhttp.HandlerOpts{}), nil
}
