package destination

import "github.com/prometheus/client_golang/prometheus"

// Metrics are those of all destinations.
type Metrics struct {
	requests, dropped *prometheus.CounterVec
	delay             *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(to prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notify_requests_total", Help: "Requests to a destination by outcome: ok, refused, failed.",
		}, []string{"destination", "outcome"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notify_dropped_total",
			Help: "Notices and digests that a destination was never told, by cause: refused by it, or too many waiting.",
		}, []string{"destination", "cause"}),
		delay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "notify_delay_seconds", Help: "Time from the moment something was seen until a destination took it.",
			Buckets: []float64{.1, .5, 1, 5, 15, 60, 300, 1800, 7200},
		}, []string{"destination"}),
	}
	to.MustRegister(m.requests, m.dropped, m.delay)
	return m
}

// announce makes counters appear before anything is counted.
func (m *Metrics) announce(name string) {
	for _, outcome := range []string{"ok", "refused", "failed"} {
		m.requests.WithLabelValues(name, outcome)
	}
	for _, cause := range []string{Refused, TooMany} {
		m.dropped.WithLabelValues(name, cause)
	}
}

// Why a destination is never told of something.
const (
	Refused = "refused"
	TooMany = "too-many"
)

// Dropped counts a notice that the destination is never told.
func (d *Destination) Dropped(cause string) { d.metrics.dropped.WithLabelValues(d.Name(), cause).Inc() }
