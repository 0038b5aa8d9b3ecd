package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rota-dev/rota/dispatch/client"
)

const (
	groupName = "external.metrics.k8s.io"
	version   = groupName + "/v1beta1"
	base      = "/apis/" + version
)

// figures are the metrics, by name. Each is there once for every kind, with the label kind.
var figures = map[string]func(client.KindStats) float64{
	"rota_dispatch_pending":        func(k client.KindStats) float64 { return float64(k.Pending) },
	"rota_dispatch_oldest_seconds": func(k client.KindStats) float64 { return k.OldestSeconds },
}

// values and value are ExternalMetricValueList and ExternalMetricValue of k8s.io/metrics.
type values struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []value `json:"items"`
}

type value struct {
	Name      string            `json:"metricName"`
	Labels    map[string]string `json:"metricLabels"`
	Timestamp metav1.Time       `json:"timestamp"`
	Value     resource.Quantity `json:"value"`
}

// stats returns how many keys wait at the dispatchers; client.Client implements it.
type stats interface {
	Stats(ctx context.Context) (client.Stats, error)
}

// newHandler serves the metrics.
func newHandler(from stats) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+base, func(w http.ResponseWriter, _ *http.Request) {
		list := metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version,
		}
		for name := range figures {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: name, Namespaced: true, Kind: "ExternalMetricValueList", Verbs: metav1.Verbs{"get"},
			})
		}
		answer(w, list)
	})
	mux.HandleFunc("GET "+base+"/namespaces/{namespace}/{metric}", func(w http.ResponseWriter, r *http.Request) {
		figure, ok := figures[r.PathValue("metric")]
		if !ok {
			http.Error(w, "there is no metric "+r.PathValue("metric"), http.StatusNotFound)
			return
		}
		selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
		if err != nil {
			http.Error(w, fmt.Sprintf("labelSelector: %v", err), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		s, err := from.Stats(ctx)
		if err == nil && s.Silent > 0 {
			// Figures from only some dispatchers are too low: too few workers would be left.
			err = fmt.Errorf("%d of %d dispatchers do not answer", s.Silent, s.Dispatchers)
		}
		if err != nil {
			http.Error(w, fmt.Sprintf("dispatchers: %v", err), http.StatusServiceUnavailable)
			return
		}
		list := values{TypeMeta: metav1.TypeMeta{Kind: "ExternalMetricValueList", APIVersion: version}, Items: []value{}}
		for _, k := range s.Kinds {
			if about := map[string]string{"kind": k.Kind}; selector.Matches(labels.Set(about)) {
				list.Items = append(list.Items, value{
					Name: r.PathValue("metric"), Labels: about, Timestamp: metav1.Now(),
					Value: *resource.NewMilliQuantity(int64(figure(k)*1000), resource.DecimalSI),
				})
			}
		}
		answer(w, list)
	})
	return mux
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // the client has gone
}
