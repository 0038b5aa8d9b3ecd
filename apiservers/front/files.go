package front

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"
)

// Forms in which a front runs on a host.
const (
	// FormFiles is only the proxy's files.
	FormFiles = "files"
	// FormStaticPod adds the manifest of a static Pod with the proxy and the agent.
	FormStaticPod = "static-pod"
	// FormSystemd adds units for systemd.
	FormSystemd = "systemd"
)

// Programs are the programs that the forms start.
type Programs struct {
	// Image is the proxy's image, and AgentImage the image with the command rota, for the static Pod.
	Image, AgentImage string
	// Binary is the path of the proxy, and AgentBinary the path of the command rota, for systemd.
	Binary, AgentBinary string
	// Kubeconfig is the agent's kubeconfig on the host. The server in it does not matter.
	Kubeconfig string
}

// KubeletConfig is the kubeconfig of a host's kubelet, as kubeadm writes it.
const KubeletConfig = "/etc/kubernetes/kubelet.conf"

// DefaultPrograms returns the default programs for a proxy. There is no default image of the agent.
func DefaultPrograms(proxy string) Programs {
	p := Programs{
		Image: "docker.io/library/haproxy:3.0", Binary: "/usr/sbin/haproxy",
		AgentBinary: "/usr/local/bin/rota", Kubeconfig: KubeletConfig,
	}
	if proxy == Envoy {
		p.Image, p.Binary = "docker.io/envoyproxy/envoy:v1.36.0", "/usr/local/bin/envoy"
	}
	return p
}

// File is a file to write. Its path has no folder.
type File struct {
	Path string
	Text []byte
}

// Files returns the files of a front. servers must be as Admit returns them. Before the agent runs, there are none.
func (f *Front) Files(form string, p Programs, servers []Server) ([]File, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	description, err := f.YAML()
	if err != nil {
		return nil, err
	}
	files := []File{{FrontFile, description}}
	if f.Proxy == Envoy {
		text, err := f.Envoy()
		if err != nil {
			return nil, err
		}
		files = append(files, File{EnvoyFile, text})
	}
	current, err := f.Current(servers, "")
	if err != nil {
		return nil, err
	}
	files = append(files, current)
	if p.Kubeconfig == KubeletConfig {
		namespace, _, _ := strings.Cut(f.Service, "/")
		files = append(files, File{"rbac.yaml", render("rbac.yaml", namespace)})
	}
	switch form {
	case FormFiles:
		return files, nil
	case FormStaticPod:
		if p.AgentImage == "" {
			return nil, errors.New("form static-pod needs the image of the agent, with the command rota: --agent-image")
		}
		if err := f.checkPod(p); err != nil {
			return nil, err
		}
		if err := p.check(map[string]string{"image": p.Image, "agent's image": p.AgentImage}); err != nil {
			return nil, err
		}
		return append(files, File{"rota-front.pod.yaml", f.pod(p)}), nil
	case FormSystemd:
		if err := p.check(map[string]string{"program": p.Binary, "agent's program": p.AgentBinary}); err != nil {
			return nil, err
		}
		if path.Dir(f.RunDir) != "/run" {
			return nil, fmt.Errorf("folder of sockets %q: for systemd, which makes it, it must be right below /run",
				f.RunDir)
		}
		if err := f.checkUnits(p); err != nil {
			return nil, err
		}
		return append(files, f.units(p)...), nil
	default:
		return nil, fmt.Errorf("form %q: must be %s, %s or %s", form, FormFiles, FormStaticPod, FormSystemd)
	}
}

// ServersFile is the agent's file with the last known servers. ServersMark is its first line.
const (
	ServersFile = "servers.yaml"
	ServersMark = "# The API servers that `rota front agent` knew last.\n"
)

// Current returns the file that changes with the servers. certificates are as for Description.
func (f *Front) Current(servers []Server, certificates string) (File, error) {
	if f.Proxy == Envoy {
		text, err := f.EnvoyEndpoints(servers)
		return File{EndpointsFile, text}, err
	}
	return File{HAProxyFile, f.HAProxy(servers, certificates)}, nil
}

// Written reports whether `rota front` or its agent wrote a text.
func Written(text []byte) bool {
	first, _, _ := bytes.Cut(text, []byte("\n"))
	line := string(first) + "\n"
	return line == frontMark || line == ServersMark || isTemplate(first)
}

func (p *Programs) check(named map[string]string) error {
	for what, value := range named {
		if value == "" || strings.ContainsAny(value, " \t\n\"'\\{}#") {
			return fmt.Errorf("%s %q: must be one word without quotes", what, value)
		}
	}
	if !pathForm.MatchString(p.Kubeconfig) {
		return fmt.Errorf("the agent's kubeconfig %q: must be an absolute path of letters, digits and -._/@+=", p.Kubeconfig)
	}
	return nil
}
