package front

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// A hostPath is a folder of the host in the Pod, or a single file.
type hostPath struct {
	Name, Path string
	File       bool
}

// shared are folders that also hold other keys: on a host with a static API server, the whole cluster's.
var shared = []string{"/etc/kubernetes", "/etc/kubernetes/pki"}

// hostPathOf returns the mount that the Pod needs to see a file. It is the file's folder, because a file that is
// renamed into place is visible only through its folder. Files in shared folders are mounted alone, since kubeadm
// writes those in place.
func hostPathOf(name, file string) hostPath {
	if slices.Contains(shared, path.Dir(file)) {
		return hostPath{name, file, true}
	}
	return hostPath{name, path.Dir(file), false}
}

// outermost removes mounts that are inside others.
func outermost(all ...hostPath) []hostPath {
	var out []hostPath
	for i, h := range all {
		covered := slices.ContainsFunc(all, func(o hostPath) bool {
			return o.Path != h.Path && strings.HasPrefix(h.Path, strings.TrimSuffix(o.Path, "/")+"/")
		}) || slices.ContainsFunc(all[:i], func(o hostPath) bool { return o.Path == h.Path })
		if !covered {
			out = append(out, h)
		}
	}
	return out
}

// checkPod returns an error for files whose changes the Pod would not see.
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

// pod returns the manifest of the static Pod. Both containers run as root, to access root's files and sockets, and
// without capabilities, except the one for ports below 1024.
func (f *Front) pod(p Programs) []byte {
	command := []string{
		"haproxy", "-W", "-db", "-S", path.Join(f.RunDir, MasterSocket), "-f", path.Join(f.Dir, HAProxyFile),
	}
	if f.Proxy == Envoy {
		command = []string{"envoy", "--disable-hot-restart", "-c", path.Join(f.Dir, EnvoyFile)}
	}
	health, _ := parseAddress((&Front{Listen: f.Admin}).Local())
	front := hostPath{Name: "front", Path: f.Dir}
	proxys := []hostPath{front, hostPathOf("ca", f.CA)}
	if f.Client != "" {
		proxys = append(proxys, hostPathOf("client", f.Client))
	}
	agents := append(slices.Clone(proxys), hostPathOf("kubeconfig", p.Kubeconfig))
	if p.Kubeconfig == KubeletConfig {
		agents = append(agents, hostPath{Name: "kubelet-pki", Path: "/var/lib/kubelet/pki"}) // its kubeconfig refers to it
	}
	// The front's own folder is mounted separately: the agent writes to it.
	isFront := func(o hostPath) bool { return o.Path == front.Path }
	proxys = slices.DeleteFunc(outermost(proxys...), isFront)
	agents = slices.DeleteFunc(outermost(agents...), isFront)
	volumes := slices.Clone(proxys)
	for _, h := range agents {
		if !slices.ContainsFunc(volumes, func(o hostPath) bool { return o.Name == h.Name }) {
			volumes = append(volumes, h)
		}
	}
	return render("rota-front.pod.yaml", struct {
		*Front
		Programs
		Command                      string
		Health                       netip.AddrPort
		Privileged                   bool
		Mounts, AgentMounts, Volumes []hostPath
	}{f, p, strings.Join(command, ", "), health, f.privileged(), proxys, agents, volumes})
}
