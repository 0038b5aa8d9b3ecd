package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/test/rig"
)

// apiserver is the name of the only API server.
const apiserver = "apiserver-0"

// plane is the control plane of a run, with default settings, since the cost of its servers is measured too.
type plane struct {
	*rig.Cluster
	http *http.Client // for pages that are no Kubernetes objects
}

func openPlane(ctx context.Context) (*plane, error) {
	s, err := rig.Open(ctx, rig.Options{Name: "bench"})
	if err != nil {
		return nil, err
	}
	p := &plane{Cluster: s}
	if p.http, err = rest.HTTPClientFor(s.Config); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return p, nil
}

// restart kills the API server, and starts it again. It returns when that serves Websites: its cache of custom
// resources fills at the first request, and the first replica must not pay for that.
func (p *plane) restart(ctx context.Context) error {
	if err := errors.Join(p.Plane.KillServer(apiserver), p.Plane.StartServer(apiserver)); err != nil {
		return err
	}
	return until(ctx, "the API server does not serve Websites", func() (bool, error) {
		cached := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
		return p.Client.List(ctx, &webv1.WebsiteList{}, client.Limit(1), cached) == nil, nil
	})
}

// get fetches a page of a server.
func (p *plane) get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.http.Do(req)
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

// metric returns a counter or a gauge of a server.
func (p *plane) metric(ctx context.Context, server, name string) (float64, error) {
	body, err := p.get(ctx, server+"/metrics")
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("metrics of %s: %w", server, err)
	}
	for _, m := range families[name].GetMetric() {
		return m.GetCounter().GetValue() + m.GetGauge().GetValue(), nil
	}
	return 0, fmt.Errorf("%s has no metric %s", server, name)
}

// processorTime returns the processor seconds of the API server and etcd since their start.
func (p *plane) processorTime(ctx context.Context) (api, etcd float64, err error) {
	const seconds = "process_cpu_seconds_total"
	api, errAPI := p.metric(ctx, p.Config.Host, seconds)
	etcd, errEtcd := p.metric(ctx, p.Plane.Etcd(), seconds)
	return api, etcd, errors.Join(errAPI, errEtcd)
}

// heap makes the API server collect garbage, and returns the bytes of the remaining heap.
func (p *plane) heap(ctx context.Context) (uint64, error) {
	// Two requests, as for replicas: the server collects garbage before it makes a heap profile.
	for range 2 {
		if _, err := p.get(ctx, p.Config.Host+"/debug/pprof/heap?gc=1"); err != nil {
			return 0, err
		}
	}
	heap, err := p.metric(ctx, p.Config.Host, "go_memstats_heap_alloc_bytes")
	return uint64(heap), err
}

// version is the API server's; "unknown" if it does not tell.
func (p *plane) version(ctx context.Context) string {
	var v struct{ GitVersion string }
	body, err := p.get(ctx, p.Config.Host+"/version")
	if err != nil || json.Unmarshal(body, &v) != nil || v.GitVersion == "" {
		return "unknown"
	}
	return v.GitVersion
}
