package writes

import (
	"net"

	"k8s.io/client-go/rest"
)

// cluster tells API servers apart, as far as a config does. The zero cluster is unknown.
type cluster struct{ host, authority string }

// clusterOf returns the cluster of a config.
func clusterOf(cfg *rest.Config) cluster {
	with := rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(with); err != nil {
		return cluster{} // making a client of it says so
	}
	return cluster{host: hostOf(cfg), authority: string(with.CAData)}
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
