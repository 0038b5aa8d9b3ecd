// Package scale has the real parts of autoscaling work together: replicas of the example operator, a Prometheus server
// that scrapes them, the Prometheus Adapter with the rules of docs/deploy.md, and kube-controller-manager's autoscaler
// with the HorizontalPodAutoscaler of examples/website/deploy/full.yaml.
package scale

import (
	"bytes"
	"context"
	"encoding/base64"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/demo"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
)

// The test binary is also the replicas'.
func TestMain(m *testing.M) {
	if os.Getenv(demo.EnvOperator) != "" {
		os.Exit(demo.OperatorMain())
	}
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

const (
	// namespace is that of the demo's rota.
	namespace = "rota-demo"
	// scrapes and decisions are the times between two of them: the chart's ServiceMonitor, and the autoscaler's default.
	scrapes, decisions = 15 * time.Second, 15 * time.Second
)

// story is one run.
type story struct {
	// faster divides all durations of the autoscaler and its metrics.
	faster int
	// metrics are the names of those that it has; nil: all of the file.
	metrics            []string
	objects            int
	work, burst, limit time.Duration
	rate, burstRate    float64
}

// TestScales: under a burst there are more replicas, after it as few as before, without a change of direction in
// between, and nothing is lost or done twice.
func TestScales(t *testing.T) {
	s := story{
		faster: 30, objects: 60, work: 700 * time.Millisecond, rate: 1, burst: 20 * time.Second, burstRate: 40,
		limit: 2 * time.Minute,
	}
	if os.Getenv("SLOW") != "" {
		s = story{
			faster: 1, objects: 600, work: time.Second, rate: 1, burst: 10 * time.Minute, burstRate: 25,
			limit: 20 * time.Minute,
		}
	}
	s.env(t)
	report := s.run(t)
	if bad := report.Failures(); len(bad) > 0 {
		t.Errorf("%s", strings.Join(bad, "; "))
	}
}

// env takes what SCALE says instead, such as "faster=10 burst=5m metrics=rota_oldest_waiting_seconds".
func (s *story) env(t *testing.T) {
	t.Helper()
	for _, word := range strings.Fields(os.Getenv("SCALE")) {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch name {
		case "faster":
			s.faster, err = strconv.Atoi(value)
		case "objects":
			s.objects, err = strconv.Atoi(value)
		case "metrics":
			s.metrics = strings.Split(value, ",")
		case "work":
			s.work, err = time.ParseDuration(value)
		case "burst":
			s.burst, err = time.ParseDuration(value)
		case "rate":
			s.rate, err = strconv.ParseFloat(value, 64)
		case "burst-rate":
			s.burstRate, err = strconv.ParseFloat(value, 64)
		default:
			t.Fatalf("SCALE: %s is unknown: name faster, objects, metrics, work, burst, rate or burst-rate", name)
		}
		if err != nil {
			t.Fatalf("SCALE: %s: %v", word, err)
		}
	}
	if s.faster < 1 || s.faster > 60 {
		t.Fatalf("SCALE: faster=%d: must be from 1 to 60", s.faster)
	}
}

func (s *story) run(t *testing.T) *demo.Report {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	scaler := s.scaler(t)
	a := &adapter{binary: buildAdapter(t), rules: s.rules(t), relist: max(decisions/time.Duration(s.faster), time.Second)}
	var metrics []string
	for _, m := range scaler.Spec.Metrics {
		metrics = append(metrics, m.Pods.Metric.Name)
	}
	report, err := demo.Run(t.Context(), demo.Options{
		Objects: s.objects, Rate: s.rate, Slots: slot.DefaultCount, LeaseDuration: 6 * time.Second, Baseline: 3 * time.Second,
		Progress: t.Output(), Command: []string{self},
		Autoscale: &demo.Autoscale{
			Scaler: scaler, Sync: decisions / time.Duration(s.faster), Work: s.work, Burst: s.burstRate, BurstLength: s.burst,
			Limit: s.limit,
			Metrics: func(ctx context.Context, plane *controlplane.ControlPlane, pods func() map[string]string) error {
				a.prometheus = startPrometheus(t, namespace, scrapes/time.Duration(s.faster), pods)
				return a.run(ctx, t, plane, namespace, metrics)
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := report.WriteText(&text); err != nil {
		t.Error(err)
	}
	t.Log(text.String())
	return report
}

// scaler reads the autoscaler of the example's manifests, with durations divided.
func (s *story) scaler(t *testing.T) autoscalingv2.HorizontalPodAutoscaler {
	t.Helper()
	text, err := os.ReadFile("../../examples/website/deploy/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out autoscalingv2.HorizontalPodAutoscaler
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if strings.Contains(document, "\nkind: HorizontalPodAutoscaler\n") {
			if err := yaml.UnmarshalStrict([]byte(document), &out); err != nil {
				t.Fatal(err)
			}
		}
	}
	shorter := func(seconds *int32) {
		if seconds != nil {
			*seconds = max(1, *seconds/int32(s.faster))
		}
	}
	for _, rules := range []*autoscalingv2.HPAScalingRules{out.Spec.Behavior.ScaleUp, out.Spec.Behavior.ScaleDown} {
		shorter(rules.StabilizationWindowSeconds)
		for i := range rules.Policies {
			shorter(&rules.Policies[i].PeriodSeconds)
		}
	}
	kept := out.Spec.Metrics[:0]
	for _, m := range out.Spec.Metrics {
		if s.metrics != nil && !contains(s.metrics, m.Pods.Metric.Name) {
			continue
		}
		if strings.HasSuffix(m.Pods.Metric.Name, "_seconds") {
			target := m.Pods.Target.AverageValue.AsApproximateFloat64() * 1000 / float64(s.faster)
			m.Pods.Target.AverageValue = resource.NewMilliQuantity(int64(target), resource.DecimalSI)
		}
		kept = append(kept, m)
	}
	if len(kept) == 0 {
		t.Fatalf("the autoscaler has none of the metrics %q", s.metrics)
	}
	out.Spec.Metrics = kept
	return out
}

var (
	// block is the example of docs/deploy.md, and window a range in it.
	block  = regexp.MustCompile("(?s)```yaml\n(rules:\n.*?)```")
	window = regexp.MustCompile(`\[(\d+[ms])\]`)
)

// rules reads the adapter's rules in docs/deploy.md, with ranges divided.
func (s *story) rules(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	found := block.FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/deploy.md has no rules for the Prometheus Adapter")
	}
	return window.ReplaceAllStringFunc(string(found[1]), func(text string) string {
		d, err := time.ParseDuration(strings.Trim(text, "[]"))
		if err != nil {
			t.Fatal(err)
		}
		return "[" + strconv.Itoa(int(d.Milliseconds())/s.faster) + "ms]"
	})
}

func contains(list []string, s string) bool {
	for _, one := range list {
		if one == s {
			return true
		}
	}
	return false
}

func base64Of(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func kubernetesFor(plane *controlplane.ControlPlane) (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(plane.Config())
}
