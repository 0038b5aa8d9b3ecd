package deployment

import (
	"cmp"
	"net"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// isLoopback reports whether a name or an address is reachable only from the host itself. Clients that connect to the
// unspecified address also reach their own host.
func isLoopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// hostOf returns the host in a URL, in HOST:PORT, in HOST alone, or in a gRPC target such as dns:///HOST:PORT. It
// returns "" for anything else, and "localhost" if the host is left out, since a client then dials its own.
func hostOf(address string) string {
	u, err := url.Parse(address)
	switch {
	case err == nil && u.Scheme == "dns": // u.Host would be the DNS server to ask
		address = cmp.Or(u.Opaque, strings.TrimPrefix(u.Path, "/"))
	case err == nil && u.Host != "":
		return cmp.Or(u.Hostname(), "localhost")
	}
	if net.ParseIP(address) != nil {
		return address
	}
	if u, err = url.Parse("//" + address); err != nil || u.Host == "" {
		return ""
	}
	return cmp.Or(u.Hostname(), "localhost")
}

// refuseLoopback refuses an address that Pods cannot reach, since only the static Pod runs beside what listens there.
func (p *planner) refuseLoopback(object, what, address string) {
	if isLoopback(hostOf(address)) {
		p.refuse(object, "have it listen where Pods reach it and name that address; else keep this API server static",
			"%s %s is reached on its own host only", what, anonymous(address))
	}
}

// anonymous returns an address without its user and password.
func anonymous(address string) string {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return address[strings.LastIndexByte(address, '@')+1:]
	}
	return scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
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

// usedClusters are the clusters that a client of a kubeconfig connects to: the current context's, or all without one.
func usedClusters(config *api.Config) map[string]*api.Cluster {
	if c := config.Contexts[config.CurrentContext]; c != nil && config.Clusters[c.Cluster] != nil {
		return map[string]*api.Cluster{c.Cluster: config.Clusters[c.Cluster]}
	}
	return config.Clusters
}

// tracingNames refuses a collector that only the host reaches, which is also the default, and one on a socket.
func tracingNames(p *planner, f *file) {
	var config struct {
		Endpoint string `json:"endpoint"`
	}
	if err := yaml.Unmarshal(f.text, &config); err != nil {
		p.refuse(f.by+"="+f.path, "correct the file", "it is not YAML: %v", err)
		return
	}
	if config.Endpoint == "" {
		p.refuse(f.by+"="+f.path, "give endpoint an address that Pods reach, or give --unset tracing-config-file",
			"it has no endpoint, so that spans go to a collector at localhost:4317, on each API server's own host only")
		return
	}
	// gRPC also accepts it without the slashes.
	if scheme, _, _ := strings.Cut(config.Endpoint, ":"); scheme == "unix" || scheme == "unix-abstract" {
		p.refuse(f.by+"="+f.path, "give endpoint an address that Pods reach, or give --unset tracing-config-file",
			"the collector %s is a socket on the host", config.Endpoint)
		return
	}
	p.refuseLoopback(f.by+"="+f.path, "the collector", config.Endpoint)
}
