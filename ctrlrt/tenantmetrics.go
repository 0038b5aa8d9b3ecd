package ctrlrt

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// tenantMetrics are the metrics of the process's named fair queues, by tenant. There may be many tenants, so only the
// ten tenants of a queue with the most items have separate series.
type tenantMetrics struct {
	mu     sync.Mutex
	queues map[string]*fairQueue
}

// mostTenants is the largest number of tenants of a queue with separate series. otherTenants is the label of the series
// for all others. No namespace has such a name, and a tenant with that name is counted there.
const (
	mostTenants  = 10
	otherTenants = "(others)"
)

var (
	tenantsOfQueues = &tenantMetrics{queues: map[string]*fairQueue{}}

	byTenant      = []string{"controller", "tenant"}
	tenantWaiting = prometheus.NewDesc("fair_queue_waiting_items", "Items of a tenant that wait for a worker, in a queue "+
		"of ctrlrt.FairQueue: of the ten tenants that have most, and of all others together.", byTenant, nil)
	tenantWorking = prometheus.NewDesc("fair_queue_working_items", "Items of a tenant that workers have.", byTenant, nil)
	tenantOldest  = prometheus.NewDesc("fair_queue_oldest_waiting_seconds", "For how long the oldest item of a tenant "+
		"has been waiting for a worker.", byTenant, nil)
)

func init() { metrics.Registry.MustRegister(tenantsOfQueues) }

// put adds a queue to the metrics. It replaces an earlier queue of the same name.
func (m *tenantMetrics) put(name string, q *fairQueue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queues[name] = q
}

// drop removes a queue from the metrics.
func (m *tenantMetrics) drop(name string, q *fairQueue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queues[name] == q {
		delete(m.queues, name)
	}
}

// Describe implements prometheus.Collector.
func (*tenantMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{tenantWaiting, tenantWorking, tenantOldest} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *tenantMetrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	queues := maps.Clone(m.queues)
	m.mu.Unlock()
	for name, q := range queues {
		for _, t := range most(q.tenants(time.Now())) {
			put := func(of *prometheus.Desc, v float64) {
				out <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, v, name, t.Name)
			}
			put(tenantWaiting, float64(t.Waiting))
			put(tenantWorking, float64(t.Working))
			put(tenantOldest, t.oldest.Seconds())
		}
	}
}

// most returns the tenants with the most items, and the sum of all others. Names are made valid UTF-8, as labels must
// be, so that several tenants may become one.
func most(all []tenantItems) []tenantItems {
	byName := map[string]tenantItems{}
	for _, t := range all {
		t.Name = strings.ToValidUTF8(t.Name, "\uFFFD")
		byName[t.Name] = t.with(byName[t.Name])
	}
	others, some := byName[otherTenants]
	delete(byName, otherTenants)
	out := slices.SortedFunc(maps.Values(byName), func(a, b tenantItems) int {
		return cmp.Or(cmp.Compare(b.Waiting+b.Working, a.Waiting+a.Working), cmp.Compare(a.Name, b.Name))
	})
	for _, t := range out[min(len(out), mostTenants):] {
		others, some = others.with(t), true
	}
	out = out[:min(len(out), mostTenants)]
	if some {
		others.Name = otherTenants
		out = append(out, others)
	}
	return out
}

// with adds the items of another tenant.
func (t tenantItems) with(o tenantItems) tenantItems {
	t.Waiting += o.Waiting
	t.Working += o.Working
	t.oldest = max(t.oldest, o.oldest)
	return t
}
