package proxy

import (
	"fmt"
	"path"
	"regexp"
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

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// pod is the manifest of the static Pod. Both containers are root, for files and sockets of root, without capabilities.
func (f *Front) pod(p Programs) string {
	command := []string{
		"haproxy", "-W", "-db", "-S", path.Join(f.RunDir, MasterSocket), "-f", path.Join(f.Dir, HAProxyFile),
	}
	if f.Proxy == Envoy {
		command = []string{"envoy", "-c", path.Join(f.Dir, EnvoyFile)}
	}
	health, _ := parseAddress((&Front{Listen: f.Admin}).Local())
	security := `    securityContext:
      runAsUser: 0
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]`
	proxys, agents := []string{f.CA}, []string{p.Kubeconfig}
	if f.Client != "" {
		proxys = append(proxys, f.Client)
	}
	var volumes strings.Builder
	mount := func(files []string) string {
		var text strings.Builder
		for _, file := range files {
			name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(file), "-"), "-")
			fmt.Fprintf(&text, "\n    - name: %s\n      mountPath: %s\n      readOnly: true", name, file)
			fmt.Fprintf(&volumes, "\n  - name: %s\n    hostPath:\n      path: %s\n      type: File", name, file)
		}
		return text.String()
	}
	proxyMounts, agentMounts := mount(proxys), mount(agents)
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
    command: [%[3]s]
    livenessProbe:
      httpGet: {host: "%[4]s", port: %[5]d, path: /healthz}
      periodSeconds: 10
      failureThreshold: 3
    resources:
      requests: {cpu: 50m, memory: 64Mi}
      limits: {memory: 512Mi}
%[6]s
    volumeMounts:
    - name: front
      mountPath: %[7]s
      readOnly: true
    - name: run
      mountPath: %[8]s%[9]s
  - name: agent
    image: %[10]s
    command: [rota, front, agent, --dir, %[7]s, --kubeconfig, %[11]s]
    resources:
      requests: {cpu: 10m, memory: 32Mi}
      limits: {memory: 256Mi}
%[6]s
    volumeMounts:
    - name: front
      mountPath: %[7]s
    - name: run
      mountPath: %[8]s
    # A kubelet's kubeconfig refers to its certificate, which is renewed.
    - name: kubelet-pki
      mountPath: /var/lib/kubelet/pki
      readOnly: true%[12]s
  volumes:
  - name: front
    hostPath:
      path: %[7]s
      type: Directory
  - name: kubelet-pki
    hostPath:
      path: /var/lib/kubelet/pki
      type: DirectoryOrCreate
  - name: run
    emptyDir:
      medium: Memory%[13]s
`, f.Proxy, p.Image, strings.Join(command, ", "), health.Addr(), health.Port(), security, f.Dir, f.RunDir, proxyMounts,
		p.AgentImage, p.Kubeconfig, agentMounts, volumes.String())
}
