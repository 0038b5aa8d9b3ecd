package split

import (
	"context"
	"fmt"
	"strings"

	"github.com/rota-dev/rota/test/stage"
)

// queues are those whose waits are reported, by the names in the metrics.
var queues = []string{
	"garbage_collector_graph_changes", "garbage_collector_attempt_to_delete", "deployment", "replicaset",
	"resourcequota_primary", "resource_quota_controller_resource_changes",
}

// reading is the metrics of all processes at a time.
type reading map[string]stage.Metrics

// read fetches the metrics of the API server, etcd and the managers.
func (c *cluster) read(ctx context.Context) (reading, error) {
	out := reading{}
	for name, url := range map[string]string{apiServer: c.config.Host, etcd: c.plane.Etcd()[0]} {
		text, err := get(ctx, c.http, url+"/metrics")
		if err != nil {
			return nil, fmt.Errorf("metrics of %s: %w", name, err)
		}
		out[name] = text
	}
	for _, m := range c.managers {
		text, err := get(ctx, m.http, m.url+"/metrics")
		if err != nil {
			return nil, fmt.Errorf("metrics of %s: %w", m.name, err)
		}
		out[m.name] = text
	}
	return out, nil
}

// Process is what a process did in a window.
type Process struct {
	CPUSeconds float64 `json:"cpu_seconds"`
	// Memory is what is resident at the end, in bytes.
	Memory float64 `json:"memory_bytes"`
	// Requests to the API server, and the seconds that they waited for the client's own rate limiter, together.
	Requests  float64 `json:"requests,omitempty"`
	Throttled float64 `json:"throttled_seconds,omitempty"`
	// Scheduling is the mean time, in milliseconds, that a goroutine was ready and did not run.
	Scheduling float64 `json:"scheduling_ms,omitempty"`
	// Queues by name.
	Queues map[string]Queue `json:"queues,omitempty"`
}

// Queue is a workqueue in a window.
type Queue struct {
	Items float64 `json:"items"`   // taken
	Wait  float64 `json:"wait_ms"` // of an item, on average
	Work  float64 `json:"work_seconds"`
	Depth float64 `json:"depth"` // at the end
}

// since returns what the processes did between two readings.
func (r reading) since(begin reading) map[string]Process {
	out := map[string]Process{}
	for name, end := range r {
		sum := func(metric string, labels ...string) float64 {
			return end.Sum(metric, labels...) - begin[name].Sum(metric, labels...)
		}
		mean := func(metric string, labels ...string) float64 {
			n := sum(metric+"_count", labels...)
			if n == 0 {
				return 0
			}
			return sum(metric+"_sum", labels...) / n * 1000
		}
		p := Process{
			CPUSeconds: sum("process_cpu_seconds_total"),
			Memory:     end.Sum("process_resident_memory_bytes"),
			Requests:   sum("rest_client_requests_total"),
			Throttled:  sum("rest_client_rate_limiter_duration_seconds_sum"),
			Scheduling: mean("go_sched_latencies_seconds"),
		}
		for _, q := range queues {
			label := `name="` + q + `"`
			n := sum("workqueue_queue_duration_seconds_count", label)
			if n == 0 {
				continue
			}
			if p.Queues == nil {
				p.Queues = map[string]Queue{}
			}
			p.Queues[strings.TrimPrefix(q, "garbage_collector_")] = Queue{
				Items: n, Wait: mean("workqueue_queue_duration_seconds", label),
				Work:  sum("workqueue_work_duration_seconds_sum", label),
				Depth: end.Sum("workqueue_depth", label),
			}
		}
		out[name] = p
	}
	return out
}
