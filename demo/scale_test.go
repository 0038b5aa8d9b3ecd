package demo

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/judge"
)

// faster divides all durations of the autoscaler.
const faster = 30

// TestScales has the HorizontalPodAutoscaler of the example's manifests, with the controllers of
// kube-controller-manager, scale the replicas in a burst: up once and down once, and nothing is lost or done twice.
func TestScales(t *testing.T) {
	slow(t)
	a := Autoscale{
		Scaler: scaler(t), Sync: 15 * time.Second / faster, Work: 700 * time.Millisecond, Burst: 40,
		BurstLength: 30 * time.Second, Limit: 2 * time.Minute, Metrics: serveMetrics(t),
	}
	small(t.Context(), t, Options{Baseline: 3 * time.Second, Story: a.Story, StageOptions: rig.StageOptions{Rate: 1}})
}

// TestScalingVerdicts: only one way up to the most replicas, and one down to the fewest, is good.
func TestScalingVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		wanted []int32
		want   string // of the failures
	}{
		"up and down":      {[]int32{2, 3, 6, 5, 4, 2}, ""},
		"not to the most":  {[]int32{2, 5, 2}, "to 5 replicas"},
		"never":            {[]int32{2}, "to 2 replicas in the burst, not to 6; it changed its direction: 0 ways"},
		"it flaps":         {[]int32{2, 6, 5, 6, 2}, "4 ways"},
		"it flaps at last": {[]int32{2, 6, 2, 3}, "3 ways up or down, not 2, to 3"},
	} {
		text := strings.Join(judge.Failures(scalingVerdicts(c.wanted, 6)), "; ")
		if (c.want == "") != (text == "") || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}

// scaler is the autoscaler of the example's chart.
func scaler(t *testing.T) (out autoscalingv2.HorizontalPodAutoscaler) {
	t.Helper()
	manifests, err := os.ReadFile("../test/charts/testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(manifests), "\n---\n") {
		if strings.Contains(document, "\nkind: HorizontalPodAutoscaler\n") {
			if err := yaml.UnmarshalStrict([]byte(document), &out); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, rules := range []*autoscalingv2.HPAScalingRules{out.Spec.Behavior.ScaleUp, out.Spec.Behavior.ScaleDown} {
		*rules.StabilizationWindowSeconds = max(1, *rules.StabilizationWindowSeconds/faster)
		for i := range rules.Policies {
			rules.Policies[i].PeriodSeconds = max(1, rules.Policies[i].PeriodSeconds/faster)
		}
	}
	for _, m := range out.Spec.Metrics {
		if target := m.Pods.Target.AverageValue; strings.HasSuffix(m.Pods.Metric.Name, "_seconds") {
			*target = *resource.NewMilliQuantity(target.MilliValue()/faster, resource.DecimalSI)
		}
	}
	return out
}

// adapter answers the autoscaler from the metrics of the replicas, as the Prometheus Adapter does with the rules of
// docs/deploy.md.
type adapter struct {
	mu     sync.Mutex
	values map[string]map[string]float64 // by metric and Pod
	busy   map[string]float64            // seconds of reconciles, by Pod
}

// serveMetrics returns the Autoscale.Metrics of an adapter.
func serveMetrics(t *testing.T) func(context.Context, *controlplane.ControlPlane, func() map[string]string) error {
	t.Helper()
	return func(ctx context.Context, plane *controlplane.ControlPlane, pods func() map[string]string) error {
		a := &adapter{values: map[string]map[string]float64{}, busy: map[string]float64{}}
		go func() {
			const every = 2 * time.Second // a new Pod counts after the second
			for ; ctx.Err() == nil; _ = await.Sleep(ctx, every) {
				a.scrape(ctx, pods(), every)
			}
		}()
		crt, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, []string{"adapter." + Namespace + ".svc"})
		if err != nil {
			return err
		}
		pair, err := tls.X509KeyPair(crt, key)
		if err != nil {
			return err
		}
		server := httptest.NewUnstartedServer(a)
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
		server.StartTLS()
		t.Cleanup(server.Close)
		return a.register(ctx, plane, server.Listener.Addr(), crt)
	}
}

// register has the API server ask the adapter, and waits until it does.
func (a *adapter) register(ctx context.Context, plane *controlplane.ControlPlane, at net.Addr, ca []byte) error {
	c, err := client.New(plane.Config(), client.Options{})
	if err != nil {
		return err
	}
	typed, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		return err
	}
	const group, version = "custom.metrics.k8s.io", "v1beta2"
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "adapter", Namespace: Namespace},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	api := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": version + "." + group},
		"spec": map[string]any{
			"group": group, "version": version, "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"caBundle": base64.StdEncoding.EncodeToString(ca), "service": map[string]any{
				"namespace": Namespace, "name": "adapter", "port": int64(at.(*net.TCPAddr).Port),
			},
		},
	}}
	if err := errors.Join(c.Create(ctx, service), c.Create(ctx, api)); err != nil {
		return err
	}
	return await.Until(ctx, 20*time.Millisecond, time.Minute, func() string {
		text, err := typed.RESTClient().Get().AbsPath("/apis/" + group + "/" + version + "/namespaces/" + Namespace +
			"/pods/*/rota_busy_workers_ratio").DoRaw(ctx)
		if err != nil || !strings.Contains(string(text), "describedObject") {
			return fmt.Sprintf("custom metrics: %v: %s", err, text)
		}
		return ""
	})
}

// ServeHTTP answers discovery, and questions for a metric of all Pods.
func (a *adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, metric, asked := strings.Cut(r.URL.Path, "/pods/*/")
	if !asked {
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","resources":[]}`)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	items := []any{}
	for pod, value := range a.values[metric] {
		items = append(items, map[string]any{
			"describedObject": map[string]string{"kind": "Pod", "apiVersion": "/v1", "namespace": Namespace, "name": pod},
			"metric":          map[string]string{"name": metric}, "timestamp": time.Now().UTC().Format(time.RFC3339),
			"value": strconv.Itoa(int(value*1000)) + "m",
		})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "metadata": map[string]any{}, "items": items,
	})
}

var gauge = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{.*\})? (\S+)$`)

// scrape reads the metrics of Pods, by their addresses.
func (a *adapter) scrape(ctx context.Context, pods map[string]string, every time.Duration) {
	values := map[string]map[string]float64{"rota_oldest_waiting_seconds": {}, "rota_busy_workers_ratio": {}}
	busy := map[string]float64{}
	for pod, address := range pods {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			continue
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			continue // it begins or ends
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		most := map[string]float64{}
		for _, m := range gauge.FindAllSubmatch(text, -1) {
			if v, err := strconv.ParseFloat(string(m[2]), 64); err == nil {
				most[string(m[1])] = max(most[string(m[1])], v)
			}
		}
		busy[pod] = most["controller_runtime_reconcile_time_seconds_sum"]
		values["rota_oldest_waiting_seconds"][pod] = most["rota_oldest_waiting_seconds"]
		if before, known := a.busy[pod]; known {
			values["rota_busy_workers_ratio"][pod] = (busy[pod] - before) / every.Seconds() /
				most["controller_runtime_max_concurrent_reconciles"]
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.values, a.busy = values, busy
}
