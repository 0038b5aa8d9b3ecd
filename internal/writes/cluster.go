package writes

import (
	"net"
	"strings"

	"k8s.io/client-go/rest"
)

// cluster tells API servers apart, as far as a config does. The zero cluster is unknown.
type cluster struct {
	host, authority string
	// path is what the paths of requests begin with; "" if there is nothing, or no config is known.
	path string
}

// clusterOf returns the cluster of a config.
func clusterOf(cfg *rest.Config) cluster {
	with := rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(with); err != nil {
		return cluster{} // making a client of it says so
	}
	of := cluster{host: hostOf(cfg), authority: string(with.CAData)}
	if url, _, err := rest.DefaultServerUrlFor(cfg); err == nil {
		of.path = strings.Trim(url.Path, "/")
	}
	return of
}

// isOther reports whether these are certainly two clusters: another authority has signed for another host. One cluster
// may have several hosts.
func (c cluster) isOther(than cluster) bool {
	return c.authority != "" && than.authority != "" && c.authority != than.authority && c.host != than.host
}

// hostOf returns the host and port of the API server of a config, as an httptrace.ClientTrace has them; "" if there is
// none.
func hostOf(cfg *rest.Config) string {
	if cfg == nil {
		return ""
	}
	url, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return ""
	}
	port := url.Port()
	switch {
	case port != "":
	case url.Scheme == "http":
		port = "80"
	default:
		port = "443"
	}
	return net.JoinHostPort(url.Hostname(), port)
}
