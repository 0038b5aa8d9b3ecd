package deployment

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"path"
	"strconv"
	"text/template"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

const deploymentComment = `API servers that scale, beside the static ones.
replicas is left out: the autoscaler sets it. Files are where the static Pods have them, from Secrets and a ConfigMap.`

// templates contains the parts of the objects that do not depend on the static Pod.
//
//go:embed templates
var templates embed.FS

var parsed = template.Must(template.ParseFS(templates, "templates/*"))

// render fills in an object from its template. The template always fits: a test writes all objects.
func (p *Plan) render(name string, object any) {
	var text bytes.Buffer
	err := parsed.ExecuteTemplate(&text, name+".yaml", map[string]any{
		"Name": strconv.Quote(p.o.Name), "Namespace": strconv.Quote(p.o.Namespace), "Min": p.o.Min, "Max": p.o.Max,
		"CPU": strconv.Quote(p.o.CPU.String()), "Port": p.port, "Digest": p.digest(),
		"Grace": int64(p.gracePeriod() / time.Second),
	})
	if err == nil {
		err = yaml.UnmarshalStrict(text.Bytes(), object)
	}
	if err != nil {
		panic(err)
	}
}

// object returns an object that does not depend on the static Pod.
func (p *Plan) object(name string) (fields map[string]any) {
	p.render(name, &fields)
	return fields
}

func (p *Plan) deployment() *appsv1.Deployment {
	d := &appsv1.Deployment{}
	p.render("deployment", d)
	pod := &d.Spec.Template.Spec
	pod.DNSConfig, pod.HostAliases = p.spec.DNSConfig, p.spec.HostAliases
	pod.NodeSelector, pod.Tolerations = p.o.NodeSelector, p.o.Tolerations
	p.server(&pod.Containers[0])
	pod.Volumes = p.projected()
	return d
}

func (p *Plan) meta(suffix string) metav1.ObjectMeta {
	name := p.o.Name
	if suffix != "" {
		name += "-" + suffix
	}
	return metav1.ObjectMeta{Name: name, Namespace: p.o.Namespace, Labels: p.labels()}
}

// labels differ from the labels of kubeadm's static Pods, whose tools would mistake these Pods for static ones.
func (p *Plan) labels() map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":      program,
		"app.kubernetes.io/instance":  p.o.Name,
		"app.kubernetes.io/component": "scaled",
	}
}

// server makes a container run what the static Pod's container runs.
func (p *Plan) server(c *corev1.Container) {
	c.Image, c.ImagePullPolicy, c.Command = p.container.Image, p.container.ImagePullPolicy, p.line.Words()
	for _, e := range p.container.Env {
		if e.Name != "POD_IP" {
			c.Env = append(c.Env, e)
		}
	}
	takeOver(c.StartupProbe, p.container.StartupProbe)
	takeOver(c.LivenessProbe, p.container.LivenessProbe)
	takeOver(c.ReadinessProbe, p.container.ReadinessProbe)
	c.Resources = *p.container.Resources.DeepCopy()
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
}

// takeOver copies a probe over HTTP, for the Pod's own address.
func takeOver(probe, given *corev1.Probe) {
	if given != nil && given.HTTPGet != nil {
		get := probe.HTTPGet
		get.Path = given.HTTPGet.Path
		*probe = *given.DeepCopy()
		probe.ProbeHandler = corev1.ProbeHandler{HTTPGet: get}
	}
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

// digest changes with each file. It does not reveal short secrets, because the files contain keys.
func (p *Plan) digest() string {
	h := sha256.New()
	for _, f := range p.files {
		_, _ = fmt.Fprintf(h, "%s %d\n%s", f.path, len(f.text), f.text) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))
}
