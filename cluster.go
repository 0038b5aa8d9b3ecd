package rota

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
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

// reads notes that an informer of the share reads a resource from a cluster.
func (r *resources) reads(of schema.GroupResource, from cluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readFrom == nil {
		r.readFrom = map[schema.GroupResource][]cluster{}
	}
	if !slices.Contains(r.readFrom[of], from) {
		r.readFrom[of] = append(r.readFrom[of], from)
	}
}

// elsewhere reports whether the informers of a resource certainly read it from other clusters than this one. What is
// written there is not what they show.
func (r *resources) elsewhere(of schema.GroupResource, written cluster) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	read := r.readFrom[of]
	return len(read) > 0 && !slices.ContainsFunc(read, func(c cluster) bool { return !c.isOther(written) })
}
