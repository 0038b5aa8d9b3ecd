package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// strict parses an object of a kind, and fails for fields that the kind does not have.
var strict = map[string]func(*testing.T, *unstructured.Unstructured){
	"ServiceAccount":                   typed[corev1.ServiceAccount],
	"PersistentVolumeClaim":            typed[corev1.PersistentVolumeClaim],
	"Service":                          typed[corev1.Service],
	"Deployment":                       typed[appsv1.Deployment],
	"PodDisruptionBudget":              typed[policyv1.PodDisruptionBudget],
	"HorizontalPodAutoscaler":          typed[autoscalingv2.HorizontalPodAutoscaler],
	"Role":                             typed[rbacv1.Role],
	"RoleBinding":                      typed[rbacv1.RoleBinding],
	"ClusterRole":                      typed[rbacv1.ClusterRole],
	"ClusterRoleBinding":               typed[rbacv1.ClusterRoleBinding],
	"ValidatingAdmissionPolicy":        typed[admissionregistrationv1.ValidatingAdmissionPolicy],
	"ValidatingAdmissionPolicyBinding": typed[admissionregistrationv1.ValidatingAdmissionPolicyBinding],
	"ServiceMonitor":                   typed[monitoringv1.ServiceMonitor],
	"PrometheusRule":                   typed[monitoringv1.PrometheusRule],
}

func typed[T any](t *testing.T, obj *unstructured.Unstructured) { t.Helper(); into[T](t, obj) }

// variant is one set of values of the matrix.
type variant struct {
	delivery                     string
	fence, autoscale, monitoring bool
	replicas                     int
	namespaces                   []any
}

// variants are all of the matrix.
func variants() (out []variant) {
	for _, delivery := range []string{"Filter", "SlotLabel", "ShardSelector"} {
		for bits := range 8 {
			for _, replicas := range []int{0, 1, 3} {
				for _, namespaces := range [][]any{{}, {"blogs", "shops"}} {
					out = append(out, variant{delivery, bits&1 > 0, bits&2 > 0, bits&4 > 0, replicas, namespaces})
				}
			}
		}
	}
	return out
}

func (c variant) values() values {
	v := set(set(nil, "rota.delivery", c.delivery), "rota.fence.enabled", c.fence)
	v = set(v, "rota.autoscaling.enabled", c.autoscale)
	v = set(v, "rota.autoscaling.cpuUtilization", 70)
	v = set(v, "rota.autoscaling.oldestWaitingSeconds", 30)
	v = set(v, "rota.monitoring.serviceMonitor.enabled", c.monitoring)
	v = set(v, "rota.monitoring.prometheusRule.enabled", c.monitoring)
	v = set(v, "rota.replicas", c.replicas)
	return set(v, "rota.namespaces", c.namespaces)
}

func (c variant) String() string {
	return fmt.Sprintf("%s,fence=%t,autoscale=%t,monitoring=%t,replicas=%d,namespaces=%d",
		c.delivery, c.fence, c.autoscale, c.monitoring, c.replicas, len(c.namespaces))
}

// kinds are how many objects of each kind there should be.
func (c variant) kinds() map[string]int {
	out := map[string]int{
		"ServiceAccount": 1, "PersistentVolumeClaim": 1, "Deployment": 1, "PodDisruptionBudget": 1, "Role": 1,
		"RoleBinding": 1,
	}
	scope, roles := "Cluster", 1
	if c.delivery != "Filter" {
		roles++
	}
	if n := len(c.namespaces); n > 0 {
		scope, roles = "", roles*n
	}
	out[scope+"Role"] += roles
	out[scope+"RoleBinding"] += roles
	if c.fence {
		out["ValidatingAdmissionPolicy"], out["ValidatingAdmissionPolicyBinding"] = 2, 2 // with the keeper
	}
	if c.autoscale {
		out["HorizontalPodAutoscaler"] = 1
	}
	if c.monitoring {
		out["Service"], out["ServiceMonitor"], out["PrometheusRule"] = 1, 1, 1
	}
	return out
}

// TestMatrix renders all values that can be chosen together.
func TestMatrix(t *testing.T) {
	chart := load(t)
	for _, c := range variants() {
		t.Run(c.String(), func(t *testing.T) {
			manifests, _, err := example(c.values()).text(chart)
			if err != nil {
				t.Fatal(err)
			}
			objects, count := parse(t, manifests), map[string]int{}
			for _, obj := range objects {
				count[obj.GetKind()]++
				check, ok := strict[obj.GetKind()]
				if !ok {
					t.Fatalf("a %s", obj.GetKind())
				}
				check(t, obj)
			}
			if diff := cmp.Diff(c.kinds(), count); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			c.deployment(t, into[appsv1.Deployment](t, one(t, objects, "Deployment")))
			budget := into[policyv1.PodDisruptionBudget](t, one(t, objects, "PodDisruptionBudget"))
			if budget.Spec.MinAvailable != nil || budget.Spec.MaxUnavailable.IntValue() != 1 {
				t.Errorf("the budget of %d replicas may block drains: %+v", c.replicas, budget.Spec)
			}
		})
	}
}

func (c variant) deployment(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	switch {
	case c.autoscale:
		if d.Spec.Replicas != nil {
			t.Errorf("the Deployment sets %d replicas, and so would undo what the autoscaler does", *d.Spec.Replicas)
		}
	case d.Spec.Replicas == nil || int(*d.Spec.Replicas) != c.replicas:
		t.Errorf("replicas %v, want %d", d.Spec.Replicas, c.replicas)
	}
	var args []string
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		if strings.HasPrefix(arg, "--rota-") || strings.HasPrefix(arg, "--namespaces") {
			args = append(args, arg)
		}
	}
	var want []string
	if len(c.namespaces) > 0 {
		want = append(want, "--namespaces=blogs,shops")
	}
	if c.delivery != "Filter" {
		want = append(want, "--rota-delivery="+c.delivery)
		if len(c.namespaces) > 0 {
			want = append(want, "--rota-label-namespaces=blogs,shops")
		}
	}
	if !slices.Equal(args, want) {
		t.Errorf("args %q, want %q", args, want)
	}
}

// TestDeployment: the Pods have what Rota needs of them.
func TestDeployment(t *testing.T) {
	d := into[appsv1.Deployment](t, one(t, example(set(set(nil, "rota.leaseDuration", "30s"), "rota.leaderElectionID",
		"website-operator")).objects(t), "Deployment"))
	if s := d.Spec.Strategy; s.RollingUpdate.MaxUnavailable.IntValue() != 0 || s.RollingUpdate.MaxSurge.IntValue() != 1 {
		t.Errorf("strategy %+v, want what docs/operations.md says", s)
	}
	pod := d.Spec.Template.Spec
	if *pod.TerminationGracePeriodSeconds != 60 {
		t.Errorf("grace period %d", *pod.TerminationGracePeriodSeconds)
	}
	manager, env := pod.Containers[0], map[string]string{}
	for _, e := range manager.Env {
		env[e.Name] = e.Value
		if e.ValueFrom != nil {
			env[e.Name] = e.ValueFrom.FieldRef.FieldPath
		}
	}
	want := map[string]string{
		"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_UID": "metadata.uid",
		"CONTAINER_NAME": manager.Name,
	}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Errorf("environment -want +got:\n%s", diff)
	}
	for _, want := range []string{"--rota-lease-duration=30s", "--rota-leader-election-id=website-operator"} {
		if !slices.Contains(manager.Args, want) {
			t.Errorf("args %q, want %q", manager.Args, want)
		}
	}
	for i, key := range []string{"topology.kubernetes.io/zone", "kubernetes.io/hostname"} {
		spread := pod.TopologySpreadConstraints[i]
		if spread.TopologyKey != key || !cmp.Equal(spread.LabelSelector, d.Spec.Selector) {
			t.Errorf("spread %+v", spread)
		}
	}
	d = into[appsv1.Deployment](t, one(t, example(set(nil, "rota.strategy", "Recreate")).objects(t), "Deployment"))
	if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || d.Spec.Strategy.RollingUpdate != nil {
		t.Errorf("strategy %+v, want Recreate", d.Spec.Strategy)
	}
}

// TestMonitoring: the ServiceMonitor finds the Service, the Service the Pods, and the alerts are those of the project.
func TestMonitoring(t *testing.T) {
	v := set(full(), "rota.monitoring.serviceMonitor.labels", values{"release": "prometheus"})
	v = set(v, "rota.monitoring.prometheusRule.labels", values{"release": "prometheus"})
	objects := example(v).objects(t)
	monitor := into[monitoringv1.ServiceMonitor](t, one(t, objects, "ServiceMonitor"))
	service := into[corev1.Service](t, one(t, objects, "Service"))
	pods := into[appsv1.Deployment](t, one(t, objects, "Deployment")).Spec.Template
	for name, value := range monitor.Spec.Selector.MatchLabels {
		if service.Labels[name] != value {
			t.Errorf("the ServiceMonitor wants %s=%s, the Service has %q", name, value, service.Labels[name])
		}
	}
	for name, value := range service.Spec.Selector {
		if pods.Labels[name] != value {
			t.Errorf("the Service wants %s=%s, Pods have %q", name, value, pods.Labels[name])
		}
	}
	if monitor.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name {
		t.Errorf("the ServiceMonitor wants port %s", monitor.Spec.Endpoints[0].Port)
	}
	if !slices.ContainsFunc(pods.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
		return p.Name == service.Spec.Ports[0].TargetPort.StrVal && p.ContainerPort == 8080
	}) {
		t.Errorf("ports %+v", pods.Spec.Containers[0].Ports)
	}
	rule := into[monitoringv1.PrometheusRule](t, one(t, objects, "PrometheusRule"))
	for _, labels := range []map[string]string{rule.Labels, monitor.Labels} {
		if labels["release"] != "prometheus" {
			t.Errorf("labels %v", labels)
		}
	}
	var want monitoringv1.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(read(t, "docs/alerts.yaml"), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, rule.Spec); diff != "" || len(rule.Spec.Groups) == 0 {
		t.Errorf("-docs/alerts.yaml +PrometheusRule:\n%s", diff)
	}
}

// TestAutoscaler: it scales this Deployment, by the metrics that were chosen.
func TestAutoscaler(t *testing.T) {
	chart := load(t)
	for name, c := range map[string]struct {
		cpu, oldest, busy int
		want              []autoscalingv2.MetricSourceType
	}{
		"cpu":    {70, 0, 0, []autoscalingv2.MetricSourceType{"Resource"}},
		"oldest": {0, 30, 0, []autoscalingv2.MetricSourceType{"Pods"}},
		"busy":   {0, 0, 70, []autoscalingv2.MetricSourceType{"Pods"}},
		"all":    {70, 30, 70, []autoscalingv2.MetricSourceType{"Resource", "Pods", "Pods"}},
	} {
		v := set(set(nil, "rota.autoscaling.enabled", true), "rota.autoscaling.cpuUtilization", c.cpu)
		v = set(v, "rota.autoscaling.oldestWaitingSeconds", c.oldest)
		manifests, _, err := example(set(v, "rota.autoscaling.busyWorkersPercent", c.busy)).text(chart)
		if err != nil {
			t.Fatal(err)
		}
		objects := parse(t, manifests)
		scaler := into[autoscalingv2.HorizontalPodAutoscaler](t, one(t, objects, "HorizontalPodAutoscaler"))
		if to := scaler.Spec.ScaleTargetRef; to.Kind != "Deployment" || to.Name != one(t, objects, "Deployment").GetName() {
			t.Errorf("%s: scales %+v", name, to)
		}
		var got []autoscalingv2.MetricSourceType
		for _, m := range scaler.Spec.Metrics {
			got = append(got, m.Type)
			if m.Pods != nil && m.Pods.Metric.Name == "rota_busy_workers_ratio" && m.Pods.Target.AverageValue.String() != "700m" {
				t.Errorf("%s: target %v, want 700m", name, m.Pods.Target.AverageValue)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: metrics %q, want %q", name, got, c.want)
		}
	}
}
