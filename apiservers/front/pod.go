package front

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const rbacMark = "# What the agent of the front may do. It uses the credentials of kubelets: group system:nodes."

func (f *Front) rbac() string {
	namespace, _, _ := strings.Cut(f.Service, "/")
	return fmt.Sprintf(rbacMark+`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: rota-front
  namespace: %[1]s
rules:
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: rota-front
  namespace: %[1]s
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: rota-front
subjects:
- apiGroup: rbac.authorization.k8s.io
  kind: Group
  name: system:nodes
`, namespace)
}

const podMark = "# The front as a static Pod: put this file into the kubelet's folder of manifests."

// A hostPath is a folder of the host in the Pod, or a file alone.
type hostPath struct {
	name, path string
	file       bool
}

// shared are folders that hold other keys, too: on a host with a static API server those of the whole cluster.
var shared = []string{"/etc/kubernetes", "/etc/kubernetes/pki"}

// hostPathOf is what the Pod needs to see a file. That is its folder, because a file that is renamed into its place is
// seen through the folder only. What is in a shared folder is mounted alone: kubeadm writes those in place.
func hostPathOf(name, file string) hostPath {
	if slices.Contains(shared, path.Dir(file)) {
		return hostPath{name, file, true}
	}
	return hostPath{name, path.Dir(file), false}
}

// outermost leaves out those that others have in them.
func outermost(all ...hostPath) []hostPath {
	var out []hostPath
	for i, h := range all {
		covered := slices.ContainsFunc(all, func(o hostPath) bool {
			return o.path != h.path && strings.HasPrefix(h.path, strings.TrimSuffix(o.path, "/")+"/")
		}) || slices.ContainsFunc(all[:i], func(o hostPath) bool { return o.path == h.path })
		if !covered {
			out = append(out, h)
		}
	}
	return out
}

// mounts are those of paths, which the container only reads.
func mounts(paths []hostPath) string {
	var text strings.Builder
	for _, h := range paths {
		fmt.Fprintf(&text, "\n    - name: %s\n      mountPath: %s\n      readOnly: true", h.name, h.path)
	}
	return text.String()
}

// volumes are those of mounts, each once. The kubelet waits for files.
func volumes(paths []hostPath) string {
	var text strings.Builder
	seen := map[string]bool{}
	for _, h := range paths {
		kind := "DirectoryOrCreate"
		if h.file {
			kind = "File"
		}
		if !seen[h.name] {
			fmt.Fprintf(&text, "\n  - name: %s\n    hostPath:\n      path: %s\n      type: %s", h.name, h.path, kind)
		}
		seen[h.name] = true
	}
	return text.String()
}

// checkPod is the error of files that the Pod would not see as they change.
func (f *Front) checkPod(p Programs) error {
	for _, file := range []string{f.CA, f.Client, p.Kubeconfig} {
		if path.Dir(file) == "/" {
			return fmt.Errorf("file %s: the static Pod mounts its folder, which cannot be /: move it", file)
		}
	}
	if slices.Contains(shared, path.Dir(f.Client)) {
		return fmt.Errorf("client certificate %s: the static Pod does not mount that folder, which has keys of others, and "+
			"would not see a file that is renewed in it: put it into %s", f.Client, f.Dir)
	}
	return nil
}

// privileged reports whether a port needs the capability CAP_NET_BIND_SERVICE.
func (f *Front) privileged() bool {
	listen, _ := parseAddress(f.Listen)
	admin, _ := parseAddress(f.Admin)
	return listen.Port() < 1024 || admin.Port() < 1024
}

// pod is the manifest of the static Pod. Both containers are root, for files and sockets of root, without capabilities
// but that for a port below 1024.
func (f *Front) pod(p Programs) string {
	command := []string{
		"haproxy", "-W", "-db", "-S", path.Join(f.RunDir, MasterSocket), "-f", path.Join(f.Dir, HAProxyFile),
	}
	if f.Proxy == Envoy {
		command = []string{"envoy", "--disable-hot-restart", "-c", path.Join(f.Dir, EnvoyFile)}
	}
	health, _ := parseAddress((&Front{Listen: f.Admin}).Local())
	security := `    securityContext:
      runAsUser: 0
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]`
	capability := ""
	if f.privileged() {
		capability = "\n        add: [NET_BIND_SERVICE]"
	}
	front := hostPath{name: "front", path: f.Dir}
	proxys := []hostPath{front, hostPathOf("ca", f.CA)}
	if f.Client != "" {
		proxys = append(proxys, hostPathOf("client", f.Client))
	}
	agents := append(slices.Clone(proxys), hostPathOf("kubeconfig", p.Kubeconfig))
	if p.Kubeconfig == KubeletConfig {
		agents = append(agents, hostPath{name: "kubelet-pki", path: "/var/lib/kubelet/pki"}) // its kubeconfig refers to it
	}
	// The front's own folder is mounted by itself: the agent writes to it.
	isFront := func(o hostPath) bool { return o.path == front.path }
	proxys = slices.DeleteFunc(outermost(proxys...), isFront)
	agents = slices.DeleteFunc(outermost(agents...), isFront)
	return fmt.Sprintf(podMark+`
apiVersion: v1
kind: Pod
metadata:
  name: rota-front
  namespace: kube-system
  labels:
    app.kubernetes.io/name: rota-front
spec:
  hostNetwork: true
  dnsPolicy: Default
  priorityClassName: system-node-critical
  # While the old proxy ends there is none.
  terminationGracePeriodSeconds: 2
  securityContext:
    seccompProfile:
      type: RuntimeDefault
  containers:
  - name: %[1]s
    image: %[2]s
    imagePullPolicy: IfNotPresent
    command: [%[3]s]
    livenessProbe:
      httpGet: {host: "%[4]s", port: %[5]d, path: /healthz}
      periodSeconds: 10
      failureThreshold: 3
    resources:
      requests: {cpu: 50m, memory: 64Mi}
      limits: {memory: 512Mi}
%[6]s%[14]s
    volumeMounts:
    - name: front
      mountPath: %[7]s
      readOnly: true
    - name: run
      mountPath: %[8]s%[9]s
  - name: agent
    image: %[10]s
    imagePullPolicy: IfNotPresent
    command: [rota, front, agent, --dir, %[7]s, --kubeconfig, %[11]s]
    resources:
      requests: {cpu: 10m, memory: 32Mi}
      limits: {memory: 256Mi}
%[6]s
    volumeMounts:
    - name: front
      mountPath: %[7]s
    - name: run
      mountPath: %[8]s%[12]s
  volumes:
  - name: front
    hostPath:
      path: %[7]s
      type: Directory
  - name: run
    emptyDir:
      medium: Memory%[13]s
`, f.Proxy, p.Image, strings.Join(command, ", "), health.Addr(), health.Port(), security, f.Dir, f.RunDir,
		mounts(proxys),
		p.AgentImage, p.Kubeconfig, mounts(agents), volumes(append(proxys, agents...)), capability)
}
