package proxy

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

// hostFolder is a folder of the host in the Pod. It is there before the first file is, on a host that is to join its
// cluster; and a file that is replaced is seen through its folder only.
type hostFolder struct{ name, path string }

// folders leaves out those that others have in them.
func folders(all ...hostFolder) []hostFolder {
	var out []hostFolder
	for i, f := range all {
		covered := slices.ContainsFunc(all, func(o hostFolder) bool {
			return o.path != f.path && strings.HasPrefix(f.path, strings.TrimSuffix(o.path, "/")+"/")
		}) || slices.ContainsFunc(all[:i], func(o hostFolder) bool { return o.path == f.path })
		if !covered {
			out = append(out, f)
		}
	}
	return out
}

// mounts are those of folders, which the container only reads.
func mounts(folders []hostFolder) string {
	var text strings.Builder
	for _, f := range folders {
		fmt.Fprintf(&text, "\n    - name: %s\n      mountPath: %s\n      readOnly: true", f.name, f.path)
	}
	return text.String()
}

// volumes are those of mounts, each once.
func volumes(folders []hostFolder) string {
	var text strings.Builder
	seen := map[string]bool{}
	for _, f := range folders {
		if !seen[f.name] {
			fmt.Fprintf(&text, "\n  - name: %s\n    hostPath:\n      path: %s\n      type: DirectoryOrCreate", f.name, f.path)
		}
		seen[f.name] = true
	}
	return text.String()
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
	listen, _ := parseAddress(f.Listen)
	security := `    securityContext:
      runAsUser: 0
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]`
	capability := ""
	if listen.Port() < 1024 || health.Port() < 1024 {
		capability = "\n        add: [NET_BIND_SERVICE]"
	}
	front := hostFolder{"front", f.Dir}
	proxys := []hostFolder{front, {"ca", path.Dir(f.CA)}}
	if f.Client != "" {
		proxys = append(proxys, hostFolder{"client", path.Dir(f.Client)})
	}
	agents := append(slices.Clone(proxys), hostFolder{"kubeconfig", path.Dir(p.Kubeconfig)})
	if p.Kubeconfig == KubeletConfig {
		agents = append(agents, hostFolder{"kubelet-pki", "/var/lib/kubelet/pki"}) // its kubeconfig refers to it
	}
	// The front's own folder is mounted by itself: the agent writes to it.
	isFront := func(o hostFolder) bool { return o.path == front.path }
	proxys = slices.DeleteFunc(folders(proxys...), isFront)
	agents = slices.DeleteFunc(folders(agents...), isFront)
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
