package deployment

import (
	"fmt"
	"maps"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const serviceComment = "its EndpointSlices tell `rota front agent` which API servers are ready.\n" +
	"In the cluster it is an address of theirs, too."

const autoscalerComment = `more API servers while they work hard, fewer when that has long been over.
Each that leaves ends its watches, which all begin anew elsewhere: so one goes at a time.`

func (p *Plan) namespace() *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{
			Name:   p.o.Namespace,
			Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		},
	}
}

func (p *Plan) service() *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: p.meta(""),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: p.labels(),
			Ports: []corev1.ServicePort{
				{Name: "https", Port: 443, TargetPort: intstr.FromString("https"), Protocol: corev1.ProtocolTCP},
			},
		},
	}
}

func (p *Plan) disruptionBudget() *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: p.meta(""),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable:             ptr.To(intstr.FromInt32(1)),
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
			Selector:                   &metav1.LabelSelector{MatchLabels: p.labels()},
		},
	}
}

// autoscaler scales by the CPU that the API servers use, not by a share of what they request: kubeadm's request is
// below what an idle one uses.
func (p *Plan) autoscaler() *autoscalingv2.HorizontalPodAutoscaler {
	pods := func(n, seconds int32) autoscalingv2.HPAScalingPolicy {
		return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: n, PeriodSeconds: seconds}
	}
	return &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"},
		ObjectMeta: p.meta(""),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
				APIVersion: "apps/v1", Kind: "Deployment", Name: p.o.Name,
			},
			MinReplicas: &p.o.Min,
			MaxReplicas: p.o.Max,
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{
					Name:   corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &p.o.CPU},
				},
			}},
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{
				ScaleUp: &autoscalingv2.HPAScalingRules{
					StabilizationWindowSeconds: ptr.To[int32](30),
					Policies:                   []autoscalingv2.HPAScalingPolicy{pods(2, 60)},
				},
				ScaleDown: &autoscalingv2.HPAScalingRules{
					StabilizationWindowSeconds: ptr.To[int32](600),
					Policies:                   []autoscalingv2.HPAScalingPolicy{pods(1, 300)},
				},
			},
		},
	}
}

// A Store is a Secret or the ConfigMap that files are in.
type Store struct {
	Kind, Name, Type string
	// Keys are those of its data, with the path of each file.
	Keys map[string]string
}

// SortedKeys returns the keys in order.
func (s Store) SortedKeys() []string { return slices.Sorted(maps.Keys(s.Keys)) }

// Command returns the command line of the API servers.
func (p *Plan) Command() []string { return p.line.Words() }

// Stores returns where the files are, in order of the names.
func (p *Plan) Stores() []Store {
	byName := map[string]*Store{}
	for _, f := range p.files {
		s := byName[f.in]
		if s == nil {
			s = &Store{Kind: "Secret", Name: p.meta(f.in).Name, Keys: map[string]string{}}
			if f.in == inConfig {
				s.Kind = "ConfigMap"
			}
			byName[f.in] = s
		}
		s.Keys[f.key] = f.path
	}
	var out []Store
	for _, in := range slices.Sorted(maps.Keys(byName)) {
		s := byName[in]
		if s.Kind == "Secret" {
			s.Type = string(corev1.SecretTypeOpaque)
			if s.Keys[corev1.TLSCertKey] != "" && s.Keys[corev1.TLSPrivateKeyKey] != "" {
				s.Type = string(corev1.SecretTypeTLS)
			}
		}
		out = append(out, *s)
	}
	return out
}

func (p *Plan) secrets() []*corev1.Secret {
	var out []*corev1.Secret
	for _, s := range p.Stores() {
		if s.Kind != "Secret" {
			continue
		}
		secret := &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: p.o.Namespace, Labels: p.labels()},
			Type:       corev1.SecretType(s.Type),
			Data:       map[string][]byte{},
		}
		for key, name := range s.Keys {
			secret.Data[key] = p.file(name).text
		}
		out = append(out, secret)
	}
	return out
}

// config returns the ConfigMap, or nil without configuration.
func (p *Plan) config() *corev1.ConfigMap {
	var m *corev1.ConfigMap
	for _, f := range p.files {
		if f.in != inConfig {
			continue
		}
		if m == nil {
			m = &corev1.ConfigMap{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: p.meta(inConfig),
				Data:       map[string]string{},
			}
		}
		m.Data[f.key] = string(f.text)
	}
	return m
}

// Summary says in a few words what is planned.
func (p *Plan) Summary() string {
	version := p.Version
	if version == "" {
		version = "of a version that its image does not name"
	}
	return fmt.Sprintf("%s %s: Deployment %s in namespace %s, %d to %d API servers on port %d, scaled at %s CPU each",
		program, version, p.o.Name, p.o.Namespace, p.o.Min, p.o.Max, p.port, p.o.CPU.String())
}
