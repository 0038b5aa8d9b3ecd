package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/rota-dev/rota/test/stage"
)

// Get fetches a page of a server.
func (c *Cluster) Get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return body, err
}

// Metrics fetches a server's metrics.
func (c *Cluster) Metrics(ctx context.Context, server string) (stage.Metrics, error) {
	body, err := c.Get(ctx, server+"/metrics")
	return stage.Metrics(body), err
}

// ServerCPU returns the processor seconds of the API server and etcd since their start.
func (c *Cluster) ServerCPU(ctx context.Context) (api, etcd float64, err error) {
	const seconds = "process_cpu_seconds_total"
	a, errA := c.Metrics(ctx, c.Config.Host)
	e, errE := c.Metrics(ctx, c.Plane.Etcd()[0])
	return a.Sum(seconds), e.Sum(seconds), errors.Join(errA, errE)
}

// ServerHeap makes the API server collect garbage, and returns the bytes of the remaining heap.
func (c *Cluster) ServerHeap(ctx context.Context) (uint64, error) {
	// Two requests, as for replicas: the server collects garbage before it makes a heap profile.
	for range 2 {
		if _, err := c.Get(ctx, c.Config.Host+"/debug/pprof/heap?gc=1"); err != nil {
			return 0, err
		}
	}
	m, err := c.Metrics(ctx, c.Config.Host)
	return uint64(m.Sum("go_memstats_heap_alloc_bytes")), err
}

// gitVersion reads the answer at /version.
func gitVersion(body []byte) string {
	var v struct{ GitVersion string }
	if err := json.Unmarshal(body, &v); err != nil || v.GitVersion == "" {
		return "unknown"
	}
	return v.GitVersion
}
