package serving

import (
	"bufio"
	"context"
	"io"
	"regexp"
	"strings"

	"k8s.io/client-go/rest"
)

// Feature gates of the API server that lists and watches depend on.
const (
	// GateConsistentLists: the API server answers consistent lists from its cache.
	GateConsistentLists = "ConsistentListFromCache"
	// GatePages: it also answers further pages of such lists from its cache.
	GatePages = "ListFromCacheSnapshot"
)

// Gates maps the names of feature gates to their states. Unknown and removed gates are missing.
type Gates map[string]bool

// Off reports whether the API server has the gate and it is off.
func (g Gates) Off(name string) bool {
	on, known := g[name]
	return known && !on
}

// FirstPageOnly reports whether only the first page of a list comes from the cache, and the rest from etcd. API servers
// older than GatePages still have GateConsistentLists; ones without GateConsistentLists also do not have GatePages.
func (g Gates) FirstPageOnly() bool {
	pages, knowsPages := g[GatePages]
	lists, knowsLists := g[GateConsistentLists]
	return knowsPages && !pages || !knowsPages && knowsLists && lists
}

// ReadGates reads the feature gates from the API server's metrics. It needs permission to get the path /metrics. Behind
// a load balancer these are the gates of one API server.
func ReadGates(ctx context.Context, core rest.Interface) (Gates, error) {
	stream, err := core.Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	return parseGates(stream)
}

var gate = regexp.MustCompile(`^kubernetes_feature_enabled\{.*\bname="([^"]+)".*\} ([01])$`)

// parseGates reads as little as possible: metrics are sorted by name, and there are megabytes of them.
func parseGates(metrics io.Reader) (Gates, error) {
	out := Gates{}
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		switch match := gate.FindStringSubmatch(lines.Text()); {
		case match != nil:
			out[match[1]] = match[2] == "1"
		case len(out) > 0 && !strings.HasPrefix(lines.Text(), "#"):
			return out, nil
		}
	}
	return out, lines.Err()
}
