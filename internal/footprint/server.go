package footprint

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// get fetches a page of a server.
func (c *cluster) get(ctx context.Context, url string) ([]byte, error) {
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

// metrics fetches a server's metrics.
func (c *cluster) metrics(ctx context.Context, server string) (metricsText, error) {
	body, err := c.get(ctx, server+"/metrics")
	return metricsText(body), err
}

// serverCPU returns the processor seconds of the API server and etcd since their start.
func (c *cluster) serverCPU(ctx context.Context) (api, etcd float64, err error) {
	const seconds = "process_cpu_seconds_total"
	a, errA := c.metrics(ctx, c.Config.Host)
	e, errE := c.metrics(ctx, c.Plane.Etcd()[0])
	return a.sum(seconds), e.sum(seconds), errors.Join(errA, errE)
}

// serverHeap makes the API server collect garbage, and returns the remaining heap.
func (c *cluster) serverHeap(ctx context.Context) (ServerHeap, error) {
	// Two requests, as for replicas: the server collects garbage before it makes a heap profile.
	for range 2 {
		if _, err := c.get(ctx, c.Config.Host+"/debug/pprof/heap?gc=1"); err != nil {
			return ServerHeap{}, err
		}
	}
	m, err := c.metrics(ctx, c.Config.Host)
	return ServerHeap{
		Heap:     uint64(m.sum("go_memstats_heap_alloc_bytes")),
		Resident: uint64(m.sum("process_resident_memory_bytes")),
		Watches:  m.watches(),
	}, err
}

// watches returns how many watches the API server serves.
func (c *cluster) watches(ctx context.Context) (int, error) {
	m, err := c.metrics(ctx, c.Config.Host)
	return m.watches(), err
}

// metricsText is what a server answers at /metrics.
type metricsText []byte

// sum adds up a metric's values over the lines that have all of the labels.
func (m metricsText) sum(name string, labels ...string) float64 {
	var total float64
lines:
	for scan := bufio.NewScanner(bytes.NewReader(m)); scan.Scan(); {
		line := scan.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue lines
			}
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err == nil {
			total += value
		}
	}
	return total
}

func (m metricsText) watches() int {
	return int(m.sum("apiserver_longrunning_requests", `verb="WATCH"`))
}

// gitVersion reads the answer at /version.
func gitVersion(body []byte) string {
	var v struct{ GitVersion string }
	if err := json.Unmarshal(body, &v); err != nil || v.GitVersion == "" {
		return "unknown"
	}
	return v.GitVersion
}
