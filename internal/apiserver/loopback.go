package apiserver

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// isLoopback tells whether only the host itself reaches a name or an address. Who connects to the unspecified address
// gets to the host, too.
func isLoopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// hostOf returns the host of a URL, or of HOST:PORT. It is "" for sockets, and for what is neither.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Hostname()
	}
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return ""
}

// refuseLoopback refuses an address that Pods do not reach: what listens there runs beside the static Pod only.
func (p *planner) refuseLoopback(object, what, address string) {
	if isLoopback(hostOf(address)) {
		p.refuse(object, "have it listen where Pods reach it and name that address; else keep this API server static",
			"%s %s is reached on its own host only", what, address)
	}
}

// checkLoopback refuses servers of flags and of the environment that only the host reaches.
func (p *planner) checkLoopback() {
	if issuer := p.line.Value("oidc-issuer-url"); issuer != "" {
		p.refuseLoopback("--oidc-issuer-url="+issuer, "the issuer", issuer)
	}
	for _, e := range p.container.Env {
		if slices.Contains([]string{"http_proxy", "https_proxy", "all_proxy"}, strings.ToLower(e.Name)) {
			p.refuseLoopback("env "+e.Name, "the proxy", e.Value)
		}
	}
}

// usedClusters are those that a client of a kubeconfig connects to: the current context's, or all if there is none.
func usedClusters(config *api.Config) map[string]*api.Cluster {
	if c := config.Contexts[config.CurrentContext]; c != nil && config.Clusters[c.Cluster] != nil {
		return map[string]*api.Cluster{c.Cluster: config.Clusters[c.Cluster]}
	}
	return config.Clusters
}

// tracingNames refuses a collector that only the host reaches, which is also the default.
func tracingNames(p *planner, f *file) {
	var config struct {
		Endpoint string `json:"endpoint"`
	}
	if err := yaml.Unmarshal(f.text, &config); err != nil {
		p.refuse(f.by+"="+f.path, "correct the file", "it is no YAML: %v", err)
		return
	}
	if config.Endpoint == "" {
		p.refuse(f.by+"="+f.path, "give endpoint an address that Pods reach, or give --unset tracing-config-file",
			"it has no endpoint, so that spans go to a collector at localhost:4317, on each API server's own host only")
		return
	}
	p.refuseLoopback(f.by+"="+f.path, "the collector", config.Endpoint)
}
