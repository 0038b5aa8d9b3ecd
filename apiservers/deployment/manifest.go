package deployment

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/apiservers/cmdline"
)

const program = "kube-apiserver"

// mirror is the kubelet's annotation on its copy of a static Pod in the API server.
const mirror = "kubernetes.io/config.mirror"

// oldest is the oldest minor version that has all flags and fields that are written.
const oldest = 27

// readManifest reads the static Pod. It returns false if there is none, so that no other check makes sense.
func (p *planner) readManifest(text []byte) bool {
	const cure = "give the file that the kubelet reads, such as /etc/kubernetes/manifests/kube-apiserver.yaml"
	wrong := func(format string, args ...any) bool {
		p.refuse(p.o.From, cure, "is not a manifest of a static Pod of kube-apiserver: "+format, args...)
		return false
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(text, &pod); err != nil {
		return wrong("%v", err)
	}
	if pod.APIVersion != "v1" || pod.Kind != "Pod" {
		return wrong("it is %q of apiVersion %q, want a Pod of v1", pod.Kind, pod.APIVersion)
	}
	if _, ok := pod.Annotations[mirror]; ok {
		return wrong("it is the mirror Pod of the API server")
	}
	if n := len(pod.Spec.Containers); n != 1 {
		return wrong("it has %d containers, want one", n)
	}
	p.container, p.volumes = pod.Spec.Containers[0], pod.Spec.Volumes
	p.spec = pod.Spec
	p.noteFields()
	words := append(append([]string{}, p.container.Command...), p.container.Args...)
	var err error
	if p.line, err = cmdline.Parse(program, words); err != nil {
		return wrong("container %s: %v", p.container.Name, err)
	}
	if n := len(pod.Spec.InitContainers); n > 0 {
		p.refuse(p.o.From, "remove them from the manifest given, and do for the Deployment what they do with a patch",
			"it has %d init containers, and nothing says whether they need their host", n)
	}
	if p.container.Lifecycle != nil {
		p.refuse(p.o.From, "remove lifecycle from the manifest given",
			"container %s has hooks, which may not work elsewhere", p.container.Name)
	}
	p.readVersion()
	for _, e := range p.container.Env {
		if e.ValueFrom != nil && e.ValueFrom.FieldRef == nil {
			p.refuse("env "+e.Name, "give it a value", "it takes its value from something else than a field")
		}
	}
	return true
}

// noteFields notes the fields of the static Pod that were set but are left out.
func (p *planner) noteFields() {
	s := p.spec
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"hostPID", s.HostPID}, {"hostIPC", s.HostIPC}, {"runtimeClassName", s.RuntimeClassName != nil},
		{"shareProcessNamespace", s.ShareProcessNamespace != nil}, {"affinity", s.Affinity != nil},
		{"imagePullSecrets", len(s.ImagePullSecrets) > 0}, {"schedulerName", s.SchedulerName != ""},
	} {
		if f.set {
			p.note("%s of the static Pod is left out: if the Deployment needs it, add it with a patch", f.name)
		}
	}
}

var imageVersion = regexp.MustCompile(`:(v?1\.(\d+)\.\d+[^/:@]*)(@[^/]*)?$`)

func (p *planner) readVersion() {
	match := imageVersion.FindStringSubmatch(p.container.Image)
	if match == nil {
		p.note("the image %q does not say its version: it has to be v1.%d or newer", p.container.Image, oldest)
		return
	}
	p.Version = match[1]
	if minor, err := strconv.Atoi(match[2]); err == nil && minor < oldest {
		p.refuse("image "+p.container.Image, "upgrade the cluster first", "the manifests need v1.%d or newer", oldest)
	}
}

// A mount is the mount of a volume in the static Pod's container.
type mount struct {
	at, host, volume string // host is "" if the volume is not on the host
}

func (p *planner) mounts() []mount {
	var out []mount
	for _, m := range p.container.VolumeMounts {
		mounted := mount{at: path.Clean(m.MountPath), volume: m.Name}
		for _, v := range p.volumes {
			if v.Name == m.Name && v.HostPath != nil {
				mounted.host = path.Join(v.HostPath.Path, m.SubPath)
			}
		}
		out = append(out, mounted)
	}
	return out
}

// below returns the path of a file relative to a folder, which is "" for the folder itself.
func below(folder, file string) (rest string, ok bool) {
	if file == folder {
		return "", true
	}
	return strings.CutPrefix(file, strings.TrimSuffix(folder, "/")+"/")
}

// mountOf returns the innermost mount that contains a file of the container.
func (p *planner) mountOf(file string) (found mount, rest string, ok bool) {
	for _, m := range p.mounts() {
		if r, in := below(m.at, file); in && (!ok || len(m.at) > len(found.at)) {
			found, rest, ok = m, r, true
		}
	}
	return found, rest, ok
}

// authorities are the folders of a host's own certificate authorities, which kubeadm mounts. The image has its own.
var authorities = []string{
	"/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki", "/etc/pki/ca-trust", "/etc/pki/tls/certs",
	"/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
}

// checkVolumes refuses volumes whose use by the API server is unknown.
func (p *planner) checkVolumes() {
	used := map[string]bool{}
	for _, f := range p.files {
		if m, _, ok := p.mountOf(f.path); ok {
			used[m.volume] = true
		}
	}
	var own []string
	for _, v := range p.volumes {
		switch {
		case v.HostPath == nil:
			p.checkVolume(v)
		case used[v.Name]:
		case isAuthorities(v.HostPath.Path):
			own = append(own, v.HostPath.Path)
		case v.HostPath.Path == "/etc/kubernetes/pki":
			// kubeadm mounts all of it; no flag names a file in it.
		default:
			p.refuse("volume "+v.Name, "remove it from the manifest given, if the API server can do without; "+
				"else keep this API server static",
				"it is %s of the host, and no flag names a certificate, key or configuration in it", v.HostPath.Path)
		}
	}
	if len(own) > 0 {
		p.note("the host's own certificate authorities (%s) stay there: the image has its own. If the API server calls a "+
			"server of an authority of your own, name it with a flag, such as --oidc-ca-file", strings.Join(own, ", "))
	}
}

func isAuthorities(folder string) bool {
	for _, a := range authorities {
		if path.Clean(folder) == a {
			return true
		}
	}
	return false
}

// checkVolume keeps volumes that start empty.
func (p *planner) checkVolume(v corev1.Volume) {
	if v.EmptyDir == nil {
		p.refuse("volume "+v.Name, "remove it from the manifest given",
			"it is neither hostPath nor emptyDir, which static Pods cannot have")
	}
}
