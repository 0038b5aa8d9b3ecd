package writes

import (
	"net"
	"strings"

	"k8s.io/client-go/rest"
)

// cluster identifies an API server by its config. The zero cluster is unknown.
type cluster struct {
	host, authority string
	// path is the prefix of the paths of requests. It is empty if the config has none, or without a config.
	path string
}

// clusterOf returns the cluster of a config.
func clusterOf(cfg *rest.Config) cluster {
	with := rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(with); err != nil {
		return cluster{} // making a client returns the error
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

// hostOf returns the host and port of a config's API server, as an httptrace.ClientTrace reports them, or "" without a
// config.
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
