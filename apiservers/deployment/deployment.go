package deployment

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const deploymentComment = `API servers that scale, beside the static ones.
replicas is left out: the autoscaler sets it. Files are where the static Pods have them, from Secrets and a ConfigMap.`

// annotationFiles has a digest of all files, so that Pods are replaced when one changes.
const annotationFiles = "rota.dev/files-sha256"

// user is whom the API servers run as.
const user = 65532

func (p *Plan) deployment() *appsv1.Deployment {
	grace := int64(p.gracePeriod() / time.Second)
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: p.meta(""),
		Spec: appsv1.DeploymentSpec{
			RevisionHistoryLimit: ptr.To[int32](3),
			MinReadySeconds:      10,
			Selector:             &metav1.LabelSelector{MatchLabels: p.labels()},
			// A new API server is there before an old one goes, and one goes at a time: its watches begin anew elsewhere.
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxUnavailable: ptr.To(intstr.FromInt32(0)), MaxSurge: ptr.To(intstr.FromInt32(1)),
				},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      p.labels(),
					Annotations: map[string]string{annotationFiles: p.digest()},
				},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken:  ptr.To(false),
					EnableServiceLinks:            ptr.To(false),
					DNSPolicy:                     corev1.DNSDefault, // the cluster's own DNS needs an API server
					DNSConfig:                     p.spec.DNSConfig,
					HostAliases:                   p.spec.HostAliases,
					PriorityClassName:             "system-cluster-critical",
					TerminationGracePeriodSeconds: &grace,
					NodeSelector:                  p.o.NodeSelector,
					Tolerations:                   p.o.Tolerations,
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](user), RunAsGroup: ptr.To[int64](user),
						FSGroup:        ptr.To[int64](user),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
						p.spread(corev1.LabelHostname, corev1.DoNotSchedule),
						p.spread(corev1.LabelTopologyZone, corev1.ScheduleAnyway),
					},
					Affinity:   &corev1.Affinity{PodAntiAffinity: awayFromStatic()},
					Containers: []corev1.Container{p.server()},
					Volumes:    p.projected(),
				},
			},
		},
	}
}

func (p *Plan) meta(suffix string) metav1.ObjectMeta {
	name := p.o.Name
	if suffix != "" {
		name += "-" + suffix
	}
	return metav1.ObjectMeta{Name: name, Namespace: p.o.Namespace, Labels: p.labels()}
}

// labels are none of those of kubeadm's static Pods, whose tools would take these Pods for static ones.
func (p *Plan) labels() map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":      program,
		"app.kubernetes.io/instance":  p.o.Name,
		"app.kubernetes.io/component": "scaled",
	}
}

// spread spreads the Pods of one rollout.
func (p *Plan) spread(key string, otherwise corev1.UnsatisfiableConstraintAction) corev1.TopologySpreadConstraint {
	return corev1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: otherwise,
		LabelSelector:    &metav1.LabelSelector{MatchLabels: p.labels()},
		MatchLabelKeys:   []string{"pod-template-hash"},
		NodeTaintsPolicy: ptr.To(corev1.NodeInclusionPolicyHonor),
	}
}

// awayFromStatic prefers nodes without a static API server, so that a lost node takes one of the two.
func awayFromStatic() *corev1.PodAntiAffinity {
	return &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
		Weight: 100,
		PodAffinityTerm: corev1.PodAffinityTerm{
			TopologyKey: corev1.LabelHostname,
			Namespaces:  []string{"kube-system"},
			LabelSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"component": program, "tier": "control-plane"},
			},
		},
	}}}
}

func (p *Plan) server() corev1.Container {
	env := []corev1.EnvVar{{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"},
	}}}
	for _, e := range p.container.Env {
		if e.Name != "POD_IP" {
			env = append(env, e)
		}
	}
	c := corev1.Container{
		Name:            program,
		Image:           p.container.Image,
		ImagePullPolicy: p.container.ImagePullPolicy,
		Command:         p.line.Words(),
		Env:             env,
		Ports:           []corev1.ContainerPort{{Name: "https", ContainerPort: p.port, Protocol: corev1.ProtocolTCP}},
		Resources:       *p.container.Resources.DeepCopy(),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			ReadOnlyRootFilesystem:   ptr.To(true),
			// The binary in the image has this capability as a file, and does not start without it, whatever its port.
			Capabilities: &corev1.Capabilities{
				Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"},
			},
		},
		StartupProbe:   p.probe(p.container.StartupProbe, "/livez", 10, 24),
		LivenessProbe:  p.probe(p.container.LivenessProbe, "/livez", 10, 8),
		ReadinessProbe: p.probe(p.container.ReadinessProbe, "/readyz", 1, 3),
	}
	if c.Resources.Requests == nil {
		c.Resources.Requests = corev1.ResourceList{}
	}
	if c.Resources.Requests.Cpu().IsZero() {
		c.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("250m")
	}
	for i, folder := range p.folders() {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeName(i), MountPath: folder, ReadOnly: true})
	}
	for _, v := range p.volumes {
		for _, m := range p.container.VolumeMounts {
			if v.EmptyDir != nil && m.Name == v.Name {
				c.VolumeMounts = append(c.VolumeMounts, m)
			}
		}
	}
	return c
}

// probe takes over a probe over HTTP, for the Pod's own address. Without one it is as kubeadm has it.
func (p *Plan) probe(given *corev1.Probe, url string, period, failures int32) *corev1.Probe {
	probe := &corev1.Probe{PeriodSeconds: period, FailureThreshold: failures, TimeoutSeconds: 15}
	if period > 1 {
		probe.InitialDelaySeconds = 10
	}
	if given != nil && given.HTTPGet != nil {
		probe, url = given.DeepCopy(), given.HTTPGet.Path
	}
	probe.ProbeHandler = corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
		Path: url, Port: intstr.FromString("https"), Scheme: corev1.URISchemeHTTPS,
	}}
	return probe
}

// volumeName names the volume of the i-th folder.
func volumeName(i int) string { return fmt.Sprintf("files-%d", i) }

// projected returns a volume per folder, with files of several Secrets.
func (p *Plan) projected() []corev1.Volume {
	var out []corev1.Volume
	for i, folder := range p.folders() {
		sources := map[string]*corev1.VolumeProjection{}
		volume := &corev1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](0o440)}
		var order []string
		for _, f := range p.files {
			rest, ok := below(folder, f.path)
			if !ok {
				continue
			}
			if sources[f.in] == nil {
				sources[f.in] = projection(p.meta(f.in).Name, f.in)
				order = append(order, f.in)
			}
			item := corev1.KeyToPath{Key: f.key, Path: path.Clean(rest)}
			if s := sources[f.in]; s.Secret != nil {
				s.Secret.Items = append(s.Secret.Items, item)
			} else {
				s.ConfigMap.Items = append(s.ConfigMap.Items, item)
			}
		}
		for _, in := range order {
			volume.Sources = append(volume.Sources, *sources[in])
		}
		out = append(out, corev1.Volume{Name: volumeName(i), VolumeSource: corev1.VolumeSource{Projected: volume}})
	}
	for _, v := range p.volumes {
		if v.EmptyDir != nil {
			out = append(out, v)
		}
	}
	return out
}

func projection(name, in string) *corev1.VolumeProjection {
	object := corev1.LocalObjectReference{Name: name}
	if in == inConfig {
		return &corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: object}}
	}
	return &corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: object}}
}

// digest changes with each file. It tells nothing of short secrets, because there are keys among the files.
func (p *Plan) digest() string {
	h := sha256.New()
	for _, f := range p.files {
		_, _ = fmt.Fprintf(h, "%s %d\n%s", f.path, len(f.text), f.text) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))
}
