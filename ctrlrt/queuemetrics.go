package ctrlrt

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// queueMetrics are the metrics of a work queue, in the metric families of controller-runtime's queues. It is nil for a
// queue without a name. Its methods may be called concurrently.
type queueMetrics struct {
	name                string
	depth               *prometheus.GaugeVec
	adds, retries       prometheus.Counter
	latency, duration   prometheus.Observer
	unfinished, longest prometheus.Gauge

	mu           sync.Mutex
	priorities   map[int]bool
	added, begun map[request]time.Time
}

// unfinishedPeriod is the time between two updates of the metrics of unfinished work, as in controller-runtime and
// client-go.
const unfinishedPeriod = 500 * time.Millisecond

// existing returns a metric family that controller-runtime has registered. The registry finds it by its description,
// which must equal the description of one of the candidates.
func existing[C prometheus.Collector](candidates ...C) (family C) {
	var err error
	for _, family = range candidates {
		var known prometheus.AlreadyRegisteredError
		if err = metrics.Registry.Register(family); err == nil {
			return family
		}
		if errors.As(err, &known) {
			if is, ok := known.ExistingCollector.(C); ok {
				return is
			}
		}
	}
	log.Log.Error(err, "A metric of fair queues is missing: this controller-runtime has another one of its name")
	return family
}

func newQueueMetrics(name string) *queueMetrics {
	if name == "" {
		return nil
	}
	by := []string{"name", "controller"}
	counter := func(of string, helps ...string) prometheus.Counter {
		var candidates []*prometheus.CounterVec
		for _, help := range helps {
			candidates = append(candidates, prometheus.NewCounterVec(prometheus.CounterOpts{
				Subsystem: metrics.WorkQueueSubsystem, Name: of, Help: help}, by))
		}
		return existing(candidates...).WithLabelValues(name, name)
	}
	gauge := func(of, help string) prometheus.Gauge {
		return existing(prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: metrics.WorkQueueSubsystem, Name: of,
			Help: help}, by)).WithLabelValues(name, name)
	}
	histogram := func(of, help string) prometheus.Observer {
		return existing(prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: metrics.WorkQueueSubsystem, Name: of, Help: help, Buckets: prometheus.ExponentialBuckets(10e-9, 10, 12),
		}, by)).WithLabelValues(name, name)
	}
	return &queueMetrics{
		name: name, priorities: map[int]bool{}, added: map[request]time.Time{}, begun: map[request]time.Time{},
		depth: existing(prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: metrics.WorkQueueSubsystem,
			Name: metrics.DepthKey, Help: "Current depth of workqueue by workqueue and priority"}, append(by, "priority"))),
		adds: counter(metrics.AddsKey, "Total number of adds handled by workqueue"),
		retries: counter(metrics.RetriesKey, "Total number of items added to the workqueue with a non-zero delay "+
			"(rate-limited requeues, explicit RequeueAfter or AddAfter calls)",
			"Total number of retries handled by workqueue"), // before controller-runtime 0.24
		latency: histogram(metrics.QueueLatencyKey,
			"How long in seconds an item stays in workqueue before being requested"),
		duration: histogram(metrics.WorkDurationKey, "How long in seconds processing an item from workqueue takes."),
		unfinished: gauge(metrics.UnfinishedWorkKey, "How many seconds of work has been done that "+
			"is in progress and hasn't been observed by work_duration. Large "+
			"values indicate stuck threads. One can deduce the number of stuck "+
			"threads by observing the rate at which this increases."),
		longest: gauge(metrics.LongestRunningProcessorKey,
			"How many seconds has the longest running processor for workqueue been running."),
	}
}

// mostPriorities is the largest number of priorities with separate series, as in controller-runtime.
const mostPriorities = 25

// at returns the gauge for the depth of a priority.
func (m *queueMetrics) at(priority int) prometheus.Gauge {
	m.mu.Lock()
	defer m.mu.Unlock()
	label := strconv.Itoa(priority)
	if !m.priorities[priority] {
		if len(m.priorities) < mostPriorities {
			m.priorities[priority] = true
		} else {
			label = "exceeded_cardinality_limit"
		}
	}
	return m.depth.WithLabelValues(m.name, m.name, label)
}

// add counts a ready item.
func (m *queueMetrics) add(item request, priority int) {
	if m == nil {
		return
	}
	m.adds.Inc()
	m.at(priority).Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, before := m.added[item]; !before {
		m.added[item] = time.Now()
	}
}

// raised records that a ready item has a new priority.
func (m *queueMetrics) raised(from, to int) {
	if m != nil {
		m.at(from).Dec()
		m.at(to).Inc()
	}
}

func (m *queueMetrics) get(item request, priority int) {
	if m == nil {
		return
	}
	m.at(priority).Dec()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun[item] = time.Now()
	if at, ok := m.added[item]; ok {
		m.latency.Observe(time.Since(at).Seconds())
		delete(m.added, item)
	}
}

func (m *queueMetrics) done(item request) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.begun[item]; ok {
		m.duration.Observe(time.Since(at).Seconds())
		delete(m.begun, item)
	}
}

func (m *queueMetrics) retry() {
	if m != nil {
		m.retries.Inc()
	}
}

// run updates the metrics of unfinished work until done is closed.
func (m *queueMetrics) run(done <-chan struct{}) {
	tick := time.NewTicker(unfinishedPeriod)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		m.mu.Lock()
		total, longest := 0.0, 0.0
		for _, at := range m.begun {
			age := time.Since(at).Seconds()
			total, longest = total+age, max(longest, age)
		}
		m.mu.Unlock()
		m.unfinished.Set(total)
		m.longest.Set(longest)
	}
}
